//! Limits of this process for memory and open files. The allocator is configured through libc,
//! because no library does it.

use std::fs;
use std::ops::Range;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the allocator return large buffers to the kernel as soon as they are freed. A window can
/// be large, and is freed once the request is answered. By default, the allocator would keep such
/// buffers permanently after the first one.
pub fn return_freed_memory() {
    const LARGE: libc::c_int = 128 << 10;
    // SAFETY: two settings of the allocator; both take any integer.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// Gives back the memory that the allocator keeps for later, and the pages of this program's code.
/// The kernel maps up to 16 pages around each page that runs. Code that has run once, at the start
/// or for a request, would count as memory of this process for good. The pages stay in the page
/// cache, and pages that run again come back without a read of the disk.
pub fn return_idle_memory() {
    // SAFETY: the call takes any number of bytes to keep.
    unsafe { libc::malloc_trim(0) };
    let Ok(mappings) = fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    for pages in unwritten_code(&mappings) {
        // SAFETY: the range is a private mapping of an unwritten file, so that each page comes back
        // as it was. After a failure the pages stay in memory.
        unsafe {
            libc::madvise(
                pages.start as *mut libc::c_void,
                pages.len(),
                libc::MADV_DONTNEED,
            )
        };
    }
}

/// Returns the mapped parts of files with code that this process has not changed. A breakpoint, for
/// example, changes a page.
fn unwritten_code(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut last = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let number = words.next();
        match (first.strip_suffix(':'), first.split_once('-')) {
            (Some("Anonymous" | "Swap" | "Private_Dirty"), _) if number != Some("0") => last = None,
            // The last line of a mapping in `smaps`.
            (Some("VmFlags"), _) => found.extend(last.take()),
            (None, Some((start, end))) => {
                let address = |text| usize::from_str_radix(text, 16).ok();
                let is_code = number == Some("r-xp")
                    && words.nth(3).is_some_and(|path| path.starts_with('/'));
                last = address(start)
                    .zip(address(end))
                    .filter(|_| is_code)
                    .map(|(start, end)| start..end);
            }
            _ => {}
        }
    }
    found
}

/// Raises the limit of open files as far as this process may, because every map and program of
/// every probe is open.
pub fn raise_file_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .is_err()
    {
        tracing::warn!("the limit of open files could not be raised");
    }
}

/// Removes this process's limit of locked memory: kernels up to 5.10 count maps and programs as
/// locked memory. Returns false if there was no limit before, or if the process may not remove it.
pub fn lift_memory_limit() -> bool {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    getrlimit(Resource::Memlock).current.is_some()
        && setrlimit(Resource::Memlock, unlimited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0000000-55d0001000 r--p 00000000 fe:00 17 /usr/bin/twinprobe
Private_Dirty:         0 kB
VmFlags: rd mr mw me sd
55d0001000-55d0003000 r-xp 00001000 fe:00 17 /usr/bin/twinprobe
Private_Dirty:         0 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me sd
7f00000000-7f00001000 r-xp 00001000 fe:00 18 /usr/lib/patched.so
Private_Dirty:         0 kB
Anonymous:             0 kB
Swap:                  4 kB
VmFlags: rd ex mr mw me sd
7ffc0000-7ffc1000 r-xp 00000000 00:00 0 [vdso]
VmFlags: rd ex mr mw me de sd
";

    #[test]
    fn only_code_of_files_that_nobody_has_written_to_is_given_back() {
        let code: Vec<_> = unwritten_code(SMAPS)
            .iter()
            .map(|pages| (pages.start, pages.end))
            .collect();
        assert_eq!(code, [(0x55_d000_1000, 0x55_d000_3000)]);
    }

    #[test]
    fn code_that_was_given_back_runs_on() {
        return_idle_memory();
        assert!(!unwritten_code(&fs::read_to_string("/proc/self/smaps").unwrap()).is_empty());
    }
}
