//! How this process holds memory.

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
