//! Turns a conversation into the prompt that the model was trained on, by the model's own template.
//!
//! Templates are small programs that come with the weights, written for Python's Jinja. They run here
//! with as much fuel as an honest one can need and no more, may not nest without end, and may not
//! write more than a prompt can be; their idea of truth, absence and JSON is Python's.

mod clock;
mod content;
mod generation_tags;
mod json;

use std::io;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use crate::ModelError;

/// Instructions that one rendering may use: about a hundred for each of a hundred thousand messages.
const FUEL: u64 = 10_000_000;
/// Depth of macros and includes. Real templates use three; each level takes native stack.
const MAX_RECURSION: usize = 64;
/// Longest prompt that may come out. More than any context can hold.
const MAX_PROMPT_BYTES: usize = 16 << 20;
/// Most entries of `chat_template_kwargs`; templates know a handful.
const MAX_ARGUMENTS: usize = 64;
/// Names that arguments of a request may not take: they would replace the conversation itself.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// A conversation to be rendered.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    /// Messages in OpenAI's shape; contents are texts or lists of text parts.
    pub messages: &'a [Json],
    /// Tool definitions in OpenAI's shape.
    pub tools: Option<&'a [Json]>,
    /// End with the opening of an answer.
    pub add_generation_prompt: bool,
    /// What the request says to the template itself (`chat_template_kwargs`).
    pub arguments: Option<&'a Map<String, Json>>,
    /// The time that templates see which print the date.
    pub now: SystemTime,
}

/// A model's chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of those tokens.
    ///
    /// ```
    /// use forespeak_model::{ChatTemplate, Conversation};
    /// use serde_json::json;
    ///
    /// let template = ChatTemplate::new(
    ///     "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}",
    ///     "<s>",
    ///     "</s>",
    /// )?;
    /// let prompt = template.render(&Conversation {
    ///     messages: &[json!({"role": "user", "content": "Hello"})],
    ///     tools: None,
    ///     add_generation_prompt: true,
    ///     arguments: None,
    ///     now: std::time::SystemTime::now(),
    /// })?;
    /// assert_eq!(prompt, "<s>[user] Hello\n");
    /// # Ok::<(), forespeak_model::ModelError>(())
    /// ```
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, ModelError> {
        Self::named([(DEFAULT, source)], bos, eos)
    }

    /// Compiles several templates of one model. The one called `tool_use` serves requests with tools,
    /// the one called `default` all others.
    pub(crate) fn named<'a>(
        sources: impl IntoIterator<Item = (&'a str, &'a str)>,
        bos: &str,
        eos: &str,
    ) -> Result<Self, ModelError> {
        let mut environment = environment()?;
        for (name, source) in sources {
            let source = generation_tags::replace(source);
            environment
                .add_template_owned(name.to_owned(), source)
                .map_err(|error| ModelError::Template(describe(&error)))?;
        }
        environment
            .get_template(DEFAULT)
            .map_err(|_| ModelError::Template("none of them is called `default`".to_owned()))?;
        Ok(Self {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// The prompt of a conversation.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, ModelError> {
        let context = self.context(conversation)?;
        let template = conversation
            .tools
            .and_then(|_| self.environment.get_template(TOOL_USE).ok())
            .map_or_else(|| self.environment.get_template(DEFAULT), Ok)
            .map_err(|error| ModelError::Template(describe(&error)))?;
        let mut prompt = Bounded(Vec::new());
        template
            .render_captured_to(context, &mut prompt)
            .map_err(|error| ModelError::Conversation(describe(&error)))?;
        // Checking is quick; copying a long prompt is not.
        Ok(String::from_utf8(prompt.0)
            .unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned()))
    }

    fn context(&self, conversation: &Conversation<'_>) -> Result<Value, ModelError> {
        let arguments = conversation.arguments;
        if arguments.is_some_and(|arguments| arguments.len() > MAX_ARGUMENTS) {
            return Err(ModelError::Conversation(format!(
                "chat_template_kwargs has more than {MAX_ARGUMENTS} entries"
            )));
        }
        let messages = conversation
            .messages
            .iter()
            .map(content::message)
            .collect::<Result<Vec<Value>, ModelError>>()?;
        let tools = conversation
            .tools
            .map(|tools| tools.iter().map(json::to_value).collect::<Vec<Value>>());
        let now = conversation.now;
        let mut context = vec![
            ("messages", Value::from(messages)),
            ("tools", tools.map_or_else(|| Value::from(()), Value::from)),
            ("documents", Value::from(())),
            (
                "add_generation_prompt",
                Value::from(conversation.add_generation_prompt),
            ),
            ("bos_token", Value::from(self.bos.as_str())),
            ("eos_token", Value::from(self.eos.as_str())),
            (
                "strftime_now",
                Value::from_function(move |format: &str| clock::format(now, format)),
            ),
        ];
        for (name, value) in arguments.into_iter().flatten() {
            if RESERVED.contains(&name.as_str()) {
                return Err(ModelError::Conversation(format!(
                    "chat_template_kwargs may not set `{name}`"
                )));
            }
            context.push((name, json::to_value(value)));
        }
        Ok(Value::from_pairs(context))
    }
}

fn environment() -> Result<Environment<'static>, ModelError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| ModelError::Template(describe(&error)))?;
    environment.set_syntax(syntax);
    environment.set_debug(false);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", json::tojson);
    environment.add_function("raise_exception", |message: String| {
        Err::<Value, Error>(Error::new(ErrorKind::InvalidOperation, message))
    });
    Ok(environment)
}

/// An error's own words without the name of its kind where it has any: what a template says through
/// `raise_exception` is meant for the user.
fn describe(error: &Error) -> String {
    let words = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{words} (line {line} of the template)"),
        None => words,
    }
}

/// Collects output up to [`MAX_PROMPT_BYTES`].
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PROMPT_BYTES {
            return Err(io::Error::other("the prompt is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render_with(source: &str, messages: &[Json], arguments: Json) -> Result<String, ModelError> {
        let template = ChatTemplate::new(source, "<s>", "</s>")?;
        template.render(&Conversation {
            messages,
            tools: Some(&[json!({"type": "function", "function": {"name": "f", "a": "<&>"}})]),
            add_generation_prompt: true,
            arguments: arguments.as_object(),
            now: SystemTime::UNIX_EPOCH,
        })
    }

    fn render(source: &str) -> String {
        let messages = [json!({"role": "user", "content": "Hi"})];
        render_with(source, &messages, json!({"enable_thinking": false})).unwrap()
    }

    #[test]
    fn python_methods_and_slices_work() {
        assert_eq!(render("{{ messages[0]['content'].strip().upper() }}"), "HI");
        assert_eq!(render("{{ messages[-1].content.split('H')[-1] }}"), "i");
        assert_eq!(
            render("{% for m in messages[::-1] %}{{ m.get('role') }}{% endfor %}"),
            "user"
        );
    }

    #[test]
    fn truth_and_absence_print_as_in_python() {
        assert_eq!(
            render("{{ add_generation_prompt }} {{ none }} {{ missing }}."),
            "True None ."
        );
        assert_eq!(
            render("{% if enable_thinking is defined and not enable_thinking %}no{% endif %}"),
            "no"
        );
    }

    #[test]
    fn json_is_python_s_json_in_the_order_given() {
        assert_eq!(
            render("{{ tools[0] | tojson }}"),
            r#"{"type": "function", "function": {"name": "f", "a": "<&>"}}"#
        );
    }

    #[test]
    fn blocks_leave_no_lines_behind() {
        assert_eq!(render("a\n  {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");
    }

    #[test]
    fn the_date_is_that_of_the_conversation() {
        assert_eq!(render("{{ strftime_now('%d %b %Y') }}"), "01 Jan 1970");
    }

    #[test]
    fn a_refusal_of_the_template_reaches_the_user() {
        let error = render_with(
            "{{ raise_exception('roles must alternate') }}",
            &[],
            json!({}),
        );
        let text = error.unwrap_err().to_string();
        assert!(text.contains("roles must alternate"), "{text}");
    }

    #[test]
    fn endless_templates_end() {
        let loops =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert!(render_with(loops, &[], json!({})).is_err());
        let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assert!(render_with(recursion, &[], json!({})).is_err());
    }

    #[test]
    fn a_broken_template_is_refused_when_loaded() {
        let error = ChatTemplate::new("{% for %}", "", "").unwrap_err();
        assert!(error.to_string().contains("template"), "{error}");
    }

    #[test]
    fn text_parts_are_joined_and_other_parts_refused() {
        let parts = |kind: &str| {
            [json!({"role": "user", "content": [
                {"type": "text", "text": "a"}, {"type": kind, "text": "b"}]})]
        };
        let joined = render_with("{{ messages[0].content }}", &parts("text"), json!({}));
        assert_eq!(joined.unwrap(), "a\nb");
        let error = render_with("", &parts("image_url"), json!({})).unwrap_err();
        assert!(error.to_string().contains("image_url"), "{error}");
    }

    #[test]
    fn arguments_cannot_replace_the_conversation() {
        assert!(render_with("", &[], json!({"messages": []})).is_err());
    }

    #[test]
    fn generation_tags_of_training_are_ignored() {
        assert_eq!(render("a{% generation %}b{%- endgeneration -%} c"), "abc");
    }
}
