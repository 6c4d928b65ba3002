//! Cores. Two threads of one core share its multipliers, so that computing threads are counted in
//! physical cores.

use std::collections::BTreeSet;
use std::path::Path;

/// Physical cores that this process may use, at least one.
pub(crate) fn physical_cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    match count_cores(Path::new("/sys/devices/system/cpu")) {
        0 => allowed,
        physical => allowed.min(physical),
    }
}

/// Distinct pairs of package and core below `root`; 0 when the kernel does not say.
fn count_cores(root: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(root) else {
        return 0;
    };
    let core_of = |cpu: &Path| {
        let read = |name: &str| {
            std::fs::read_to_string(cpu.join("topology").join(name))
                .ok()
                .map(|text| text.trim().to_owned())
        };
        Some((read("physical_package_id")?, read("core_id")?))
    };
    let cores: BTreeSet<_> = entries
        .flatten()
        .filter_map(|entry| core_of(&entry.path()))
        .collect();
    cores.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_count_once() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, core) in [("cpu0", "0"), ("cpu1", "0"), ("cpu2", "1")] {
            let topology = root.path().join(cpu).join("topology");
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("physical_package_id"), "0\n").unwrap();
            std::fs::write(topology.join("core_id"), core).unwrap();
        }
        std::fs::create_dir(root.path().join("cpufreq")).unwrap();
        assert_eq!(count_cores(root.path()), 2);
    }

    #[test]
    fn there_is_always_a_core() {
        assert!(physical_cores() >= 1);
    }
}
