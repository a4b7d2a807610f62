//! The limits of a compilation.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

/// The limits of compilations: processor time, time, bytes of the object and of the log, memory,
/// and their number at once.
#[derive(Clone, Copy, Debug)]
pub struct CompileLimits {
    /// The limit of processor time: a source that needs more is the client's fault.
    pub cpu_time: Duration,
    /// The time by the clock, far more: a busy host gives a compilation a small share of its
    /// processors.
    pub time: Duration,
    pub object: usize,
    pub log: usize,
    /// The bytes of address space. The largest probes need a quarter of this, most of it for
    /// libraries.
    pub memory: u64,
    /// The bytes of memory that the compiler may write. The largest probes need 100 MiB.
    pub data: u64,
    pub at_once: usize,
}

/// The least and the largest limit for a compilation's writable memory.
const DATA: (u64, u64) = (256 << 20, 1 << 30);

impl Default for CompileLimits {
    fn default() -> Self {
        Self::within(room())
    }
}

impl CompileLimits {
    /// The limits on a machine with this much memory: all compilations together take half of it.
    fn within(memory: u64) -> Self {
        let data = (memory / 4).clamp(DATA.0, DATA.1);
        let cpus = available_parallelism().map_or(1, usize::from);
        let at_once = usize::try_from(memory / 2 / data)
            .unwrap_or(cpus)
            .clamp(1, cpus);
        Self {
            cpu_time: Duration::from_secs(20),
            time: Duration::from_secs(180),
            object: 16 << 20,
            log: 256 << 10,
            memory: 2 << 30,
            data,
            at_once,
        }
    }
}

/// The bytes of memory for this process: all memory of the machine, or of the smallest control
/// group around the process.
fn room() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let machine = read(Path::new("/proc/meminfo"));
    let machine = machine.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .strip_suffix("kB")?
            .trim()
            .parse()
            .ok()
    });
    let groups = read(Path::new("/proc/self/cgroup"));
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (root, file) = match (fields.next(), fields.next()) {
            (Some("0"), _) => ("/sys/fs/cgroup", "memory.max"),
            (_, Some("memory")) => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        let group = Path::new(fields.next().unwrap_or("/"))
            .strip_prefix("/")
            .unwrap_or(Path::new(""));
        group
            .ancestors()
            .map(|group| Path::new(root).join(group).join(file))
            .collect()
    });
    // "max" is not a limit.
    let limits = limits.filter_map(|path| read(&path).trim().parse().ok());
    limits
        .chain(machine.map(|kib: u64| kib << 10))
        .min()
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilations_take_half_of_the_memory_at_most() {
        assert!((64 << 20..1 << 50).contains(&room()), "{}", room());
        for (memory, data, most) in [
            (1 << 30, 256 << 20, 2),
            (100 << 20, 256 << 20, 1),
            (1 << 40, 1 << 30, 512),
        ] {
            let limits = CompileLimits::within(memory);
            assert_eq!(limits.data, data);
            assert!((1..=most).contains(&limits.at_once), "{}", limits.at_once);
        }
    }
}
