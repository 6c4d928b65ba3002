//! What the machine's caches hold.

use std::sync::LazyLock;

/// Bytes of the cache that stands before main memory; none where the system does not tell.
pub(crate) fn last_level_bytes() -> usize {
    static BYTES: LazyLock<usize> = LazyLock::new(|| {
        let caches = (0..8).filter_map(|index| {
            let about = |what: &str| {
                let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
                std::fs::read_to_string(path).ok()
            };
            let level: u32 = about("level")?.trim().parse().ok()?;
            Some((level, bytes(&about("size")?)?))
        });
        caches.max().map_or(0, |(_, bytes)| bytes)
    });
    *BYTES
}

/// A size as Linux writes those of caches, like `32768K`.
fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, ""),
    };
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_linux_writes_them() {
        assert_eq!(bytes("32768K\n"), Some(32 << 20));
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("1G"), Some(1 << 30));
        assert_eq!(bytes("many"), None);
        assert_eq!(bytes("99999999999999999999M"), None);
    }
}
