//! `bpf(2)`: one function for each command. The functions take kernel structures and return owned
//! descriptors.
//!
//! No library offers these calls: rustix leaves `bpf(2)` out, and aya's calls are private and work
//! only for objects that aya itself has loaded.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use aya_obj::generated::bpf_cmd;

use crate::sys::process;

/// A system call that failed, and the object that it was about.
#[derive(Debug, thiserror::Error)]
#[error("{call} of {object} failed")]
pub struct KernelError {
    pub call: &'static str,
    pub object: String,
    #[source]
    pub source: io::Error,
}

impl KernelError {
    pub fn new(call: &'static str, object: impl Into<String>, source: io::Error) -> Self {
        Self {
            call,
            object: object.into(),
            source,
        }
    }

    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// Runs `cmd` with `attr`, a `#[repr(C)]` view of `union bpf_attr`. The kernel accepts any length
/// and treats missing bytes as zero.
pub fn bpf<T>(cmd: bpf_cmd, attr: &mut T) -> io::Result<u32> {
    // SAFETY: `attr` is a live, fully initialised `#[repr(C)]` structure of the passed length;
    // callers take the pointers inside it from slices that outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, cmd as libc::c_long, attr, size_of::<T>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(u32::try_from(result).unwrap_or(0))
    }
}

pub fn bpf_fd<T>(cmd: bpf_cmd, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = match bpf(cmd, attr) {
        // The kernel answers EPERM also if the limit of locked memory is reached.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && process::lift_memory_limit() => {
            bpf(cmd, attr)?
        }
        result => result?,
    };
    // SAFETY: the command returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

pub fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() {
        0
    } else {
        slice.as_ptr() as u64
    }
}

pub fn address_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() {
        0
    } else {
        slice.as_mut_ptr() as u64
    }
}

/// Makes the name of a kernel object, of `BPF_OBJ_NAME_LEN` bytes: longer names are cut, and
/// characters that the kernel refuses become `_`.
pub fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().zip(name.bytes()).take(15) {
        *to = if from.is_ascii_alphanumeric() || from == b'_' || from == b'.' {
            from
        } else {
            b'_'
        };
    }
    out
}

/// Returns `None` if the entry, object or file does not exist (`ENOENT`).
pub fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Tells whether the kernel lacks an operation: `ENOTSUPP` (524, the kernel's internal number),
/// `EOPNOTSUPP`, or `EINVAL` from kernels that lack the command.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(524 | libc::EOPNOTSUPP | libc::EINVAL)
    )
}
