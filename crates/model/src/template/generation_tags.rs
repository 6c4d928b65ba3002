//! `{% generation %}` marks, for training, what the assistant said. It means nothing when serving, but
//! Jinja must be told: the tags become a condition that always holds.

pub(super) fn replace(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let name = tag
            .trim_start_matches("{%")
            .trim_end_matches("%}")
            .trim_matches(['-', '+'])
            .trim();
        match name {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::replace;

    #[test]
    fn whitespace_control_is_kept_and_other_tags_are_left_alone() {
        assert_eq!(
            replace("{%- generation -%}x{% endgeneration %}"),
            "{%- if true -%}x{% endif %}"
        );
        let other = "{% if generation %}{{ '{%' }}";
        assert_eq!(replace(other), other);
    }
}
