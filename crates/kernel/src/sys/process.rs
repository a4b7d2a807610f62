//! How much memory and how many files this process holds. The allocator is told through libc: no library does it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Gives large buffers back as soon as they are freed. A window can be large and is gone once it is answered;
/// by default the allocator learns from it to keep such buffers for good.
pub fn return_freed_memory() {
    const LARGE: libc::c_int = 128 << 10;
    // SAFETY: two settings of the allocator; both take any integer.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// Raises the limit of open files as far as this process may: every map and program of every probe is open.
pub fn raise_file_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        tracing::warn!("the limit of open files stays as it is");
    }
}

/// Lets this process lock as much memory as it likes, as which kernels up to 5.10 count maps and programs. `false`: it
/// could before, or it may not.
pub fn lift_memory_limit() -> bool {
    let unlimited = Rlimit { current: None, maximum: None };
    getrlimit(Resource::Memlock).current.is_some() && setrlimit(Resource::Memlock, unlimited).is_ok()
}
