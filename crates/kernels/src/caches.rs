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
    let (number, unit) = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)]
        .into_iter()
        .find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, unit)))
        .unwrap_or((text, 1));
    number.parse::<usize>().ok()?.checked_mul(unit)
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
