//! Free memory: the kernel's estimate, or what the container's limit leaves if that is less.

use std::path::{Path, PathBuf};

use crate::size::ByteSize;

/// Memory that can be taken without pushing anything out; `None` when the system does not say.
pub(crate) fn available_memory() -> Option<ByteSize> {
    let system = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| mem_available(&text));
    let group = std::fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| cgroup_headroom(&text, Path::new("/sys/fs/cgroup")));
    match (system, group) {
        (Some(system), Some(group)) => Some(ByteSize(system.min(group))),
        (one, other) => one.or(other).map(ByteSize),
    }
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The least that any limit on the way from this process's group to the root leaves.
fn cgroup_headroom(own_groups: &str, root: &Path) -> Option<u64> {
    own_groups
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            match (parts.next()?, parts.next()?) {
                ("", path) => headroom_upwards(root, path, "memory.max", "memory.current"),
                (controllers, path) if controllers.split(',').any(|name| name == "memory") => {
                    headroom_upwards(
                        &root.join("memory"),
                        path,
                        "memory.limit_in_bytes",
                        "memory.usage_in_bytes",
                    )
                }
                _ => None,
            }
        })
        .min()
}

fn headroom_upwards(root: &Path, path: &str, limit: &str, usage: &str) -> Option<u64> {
    let read =
        |file: PathBuf| -> Option<u64> { std::fs::read_to_string(file).ok()?.trim().parse().ok() };
    let group = root.join(path.trim_start_matches('/'));
    group
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .filter_map(|folder| {
            let limit = read(folder.join(limit))?;
            let usage = read(folder.join(usage)).unwrap_or(0);
            Some(limit.saturating_sub(usage))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_estimate_is_read() {
        let meminfo = "MemTotal:  100 kB\nMemAvailable:    24 kB\n";
        assert_eq!(mem_available(meminfo), Some(24 << 10));
        assert_eq!(mem_available("MemTotal: 1 kB"), None);
    }

    #[test]
    fn the_tightest_limit_above_us_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "1000\n").unwrap();
        std::fs::write(root.path().join("a/memory.current"), "400\n").unwrap();
        assert_eq!(cgroup_headroom("0::/a/b\n", root.path()), Some(600));
        assert_eq!(cgroup_headroom("0::/\n", root.path()), None);
    }

    #[test]
    fn the_older_layout_is_understood() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("memory/x");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("memory.limit_in_bytes"), "50").unwrap();
        assert_eq!(
            cgroup_headroom("4:memory:/x\n0::/\n", root.path()),
            Some(50)
        );
    }
}
