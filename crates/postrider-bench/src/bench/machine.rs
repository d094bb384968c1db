//! The machine that the figures were measured on.

use serde::Serialize;

/// The machine, as described by `/proc`; fields are empty without it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(super) memory_mb: u64,
    pub(crate) cpu: String,
    pub(super) system: String,
}

impl Machine {
    pub(super) fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mb: kib(&read("/proc/meminfo"), "MemTotal:") * 1_024 / 1_000_000,
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
        }
    }
}

/// Returns the resident memory of this process in bytes; 0 without `/proc`.
pub(super) fn resident_bytes() -> u64 {
    kib(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmRSS:") * 1_024
}

fn kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        assert_eq!(kib("MemFree: 1 kB\nMemTotal:       2048 kB\n", "MemTotal:"), 2_048);
        assert_eq!(kib("", "MemTotal:"), 0);
        let cpu = field("processor\t: 0\nmodel name\t: Fast: 3 GHz\n", "model name");
        assert_eq!(cpu.as_deref(), Some("Fast: 3 GHz"));
    }
}
