//! The CPUs that a thread avoids because packets arrive there. The kernel wakes a reader of events
//! on the CPU that the reader ran on last. If packets arrive on that CPU, the kernel handles them
//! first, and the reader runs only after the burst.

use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// The shortest time between two looks at the CPUs where packets arrive.
const PATIENCE: Duration = Duration::from_millis(20);

/// The CPUs on which the thread that made this value may run. The drop of the value lets the thread
/// run on all CPUs again.
#[derive(Debug)]
pub struct Affinity {
    /// The number of times that each CPU had handled packets at the last look.
    handled: Vec<(usize, u64)>,
    looked: Instant,
    away: bool,
}

impl Affinity {
    #[expect(clippy::new_without_default, reason = "it looks at the machine")]
    pub fn new() -> Self {
        Self {
            handled: handled().unwrap_or_default(),
            looked: Instant::now(),
            away: false,
        }
    }

    /// Moves the thread away from the CPUs that have recently handled most packets. If there is no
    /// other CPU, the thread stays.
    pub fn leave_packets(&mut self) {
        if self.looked.elapsed() < PATIENCE {
            return;
        }
        self.looked = Instant::now();
        let Ok(now) = handled() else { return };
        let busy = busiest(&self.handled, &now);
        self.handled = now;
        // The CPUs of a process are those of its main thread.
        let Ok(mut cpus) = sched_getaffinity(Some(getpid())) else {
            return;
        };
        for cpu in busy {
            cpus.unset(cpu);
        }
        // The kernel refuses an empty set.
        self.away |= sched_setaffinity(None, &cpus).is_ok();
    }

    /// Lets the thread run on all CPUs again if it has not been late for this time.
    pub fn return_after(&mut self, time: Duration) {
        if self.away && self.looked.elapsed() >= time {
            self.stay_anywhere();
        }
    }

    fn stay_anywhere(&mut self) {
        self.away = false;
        if let Ok(cpus) = sched_getaffinity(Some(getpid())) {
            // A failure does little harm: the thread then stays on its CPUs and may be late more
            // often.
            let _ = sched_setaffinity(None, &cpus);
        }
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        if self.away {
            self.stay_anywhere();
        }
    }
}

/// Returns how often each CPU has handled packets that came in.
fn handled() -> io::Result<Vec<(usize, u64)>> {
    Ok(parse(&fs::read_to_string("/proc/softirqs")?))
}

fn parse(table: &str) -> Vec<(usize, u64)> {
    let mut lines = table.lines().map(str::split_whitespace);
    let cpus = lines
        .next()
        .into_iter()
        .flatten()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok());
    let counts = lines.find_map(|mut words| (words.next() == Some("NET_RX:")).then_some(words));
    cpus.zip(
        counts
            .into_iter()
            .flatten()
            .filter_map(|count| count.parse().ok()),
    )
    .collect()
}

/// Returns the CPUs that have handled at least half as many packets between two looks as the
/// busiest one.
fn busiest(before: &[(usize, u64)], now: &[(usize, u64)]) -> Vec<usize> {
    let more = |(cpu, count): &(usize, u64)| {
        let before = before
            .iter()
            .find(|before| before.0 == *cpu)
            .map_or(0, |before| before.1);
        count.saturating_sub(before)
    };
    let most = now.iter().map(more).max().unwrap_or(0).max(1);
    now.iter()
        .filter(|cpu| more(cpu) >= most.div_ceil(2))
        .map(|cpu| cpu.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_handle_most_packets_are_found() {
        let table = "       CPU0       CPU2\n  HI:   7  7\n  NET_RX:   10   3\n";
        let before = parse(table);
        assert_eq!(before, [(0, 10), (2, 3)]);
        assert_eq!(busiest(&before, &[(0, 20), (2, 100), (3, 50)]), [2, 3]);
        assert_eq!(busiest(&before, &before), Vec::<usize>::new());
        assert!(parse("").is_empty());
    }

    #[test]
    fn a_seat_that_ends_leaves_all_cpus() {
        let before = sched_getaffinity(None).unwrap();
        let mut affinity = Affinity::new();
        affinity.handled = handled()
            .unwrap()
            .into_iter()
            .map(|(cpu, count)| (cpu, if cpu == 0 { 0 } else { count }))
            .collect();
        affinity.looked -= PATIENCE;
        affinity.leave_packets();
        let cpus = sched_getaffinity(None).unwrap();
        assert_eq!(cpus.is_set(0), before.is_set(0) && before.count() == 1);
        drop(affinity);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
