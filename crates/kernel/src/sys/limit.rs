//! Locked memory, as which kernels up to 5.10 count maps and programs.

/// Lets this process lock as much memory as it likes. `false`: it could before, or it may not.
pub fn lift() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure that the call fills.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    if !known || limit.rlim_cur == libc::RLIM_INFINITY {
        return false;
    }
    let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a live structure that the call reads.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none) == 0 }
}
