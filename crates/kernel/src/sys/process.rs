//! Limits of this process for memory and open files. The allocator is configured through libc, because no library does
//! it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the allocator return large buffers to the kernel as soon as they are freed. A window can be large and is freed
/// once it is answered; by default the allocator would keep such buffers for good after the first one.
pub fn return_freed_memory() {
    const LARGE: libc::c_int = 128 << 10;
    // SAFETY: two settings of the allocator; both take any integer.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// Raises the limit of open files as far as this process may, because every map and program of every probe is open.
pub fn raise_file_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        tracing::warn!("the limit of open files could not be raised");
    }
}

/// Removes this process's limit of locked memory: kernels up to 5.10 count maps and programs as locked memory. Returns
/// false if there was no limit before, or if the process may not remove it.
pub fn lift_memory_limit() -> bool {
    let unlimited = Rlimit { current: None, maximum: None };
    getrlimit(Resource::Memlock).current.is_some() && setrlimit(Resource::Memlock, unlimited).is_ok()
}
