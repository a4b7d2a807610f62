//! The clock that `bpf_ktime_get_ns` reads, and the one of this process.

use std::time::{Duration, SystemTime};

/// Nanoseconds from the Unix epoch to the zero of CLOCK_MONOTONIC, roughly the boot of the machine.
pub fn monotonic_zero_ns() -> i128 {
    let monotonic = i128::try_from(read(libc::CLOCK_MONOTONIC).as_nanos()).unwrap_or(i128::MAX);
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(unix.as_nanos()).unwrap_or(i128::MAX) - monotonic
}

/// What the threads of this process have run so far.
pub fn process_cpu() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure that lives through the call; both clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}
