//! The clock that `bpf_ktime_get_ns` reads.

use std::time::SystemTime;

/// Nanoseconds from the Unix epoch to the zero of CLOCK_MONOTONIC, roughly the boot of the machine.
pub fn monotonic_zero_ns() -> i128 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure that lives through the call; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let monotonic = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(unix.as_nanos()).unwrap_or(i128::MAX) - monotonic
}
