//! Metrics of the process, under the names that all Prometheus client libraries use. The crate
//! `metrics-process` is not used: it reports to the facade `metrics`, but `prometheus-client` makes
//! this page.

use std::fs;
use std::time::SystemTime;

use prometheus_client::registry::{Registry, Unit};
use twinprobe_kernel::clock;

use crate::telemetry::counters::{Amount, Total};

/// The facts about the process that `/proc` does not show.
#[derive(Debug)]
pub struct Process {
    /// The start of the daemon in seconds since 1970.
    started: f64,
}

impl Process {
    pub fn new() -> Self {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: now.as_secs_f64(),
        }
    }

    /// Adds the metrics of the process, except those that `/proc` does not show.
    pub fn register(&self, registry: &mut Registry) {
        let cpu = Total::<f64>::default();
        cpu.inc_by(clock::process_cpu().as_secs_f64());
        registry.register_with_unit("process_cpu", "CPU time of all threads", Unit::Seconds, cpu);
        let started = Amount::<f64>::default();
        started.set(self.started);
        registry.register_with_unit(
            "process_start_time",
            "Time of the start",
            Unit::Seconds,
            started,
        );

        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut bytes = |name: &str, help: &str, line: &str| {
            if let Some(kib) = number(&status, line) {
                let amount = Amount::<u64>::default();
                amount.set(kib * 1024);
                registry.register_with_unit(name, help, Unit::Bytes, amount);
            }
        };
        bytes("process_resident_memory", "Memory in RAM", "VmRSS:");
        bytes("process_virtual_memory", "Address space", "VmSize:");

        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let mut count = |name: &str, help: &str, number: Option<u64>| {
            if let Some(number) = number {
                let amount = Amount::<u64>::default();
                amount.set(number);
                registry.register(name, help, amount);
            }
        };
        // The descriptor that lists the directory does not count.
        let open =
            fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1) as u64);
        count("process_open_fds", "Open file descriptors", open.ok());
        count(
            "process_max_fds",
            "Limit of open file descriptors",
            number(&limits, "Max open files"),
        );
        count("process_threads", "Threads", number(&status, "Threads:"));
    }
}

/// Returns the first number of the line that begins with `name`.
fn number(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_the_start_of_their_line() {
        let text =
            "VmSize:\t  123 kB\nMax open files            1024                 524288  files\nx:\n";
        assert_eq!(number(text, "VmSize:"), Some(123));
        assert_eq!(number(text, "Max open files"), Some(1024));
        assert_eq!(number(text, "x:"), None);
        assert_eq!(number(text, "y:"), None);
    }
}
