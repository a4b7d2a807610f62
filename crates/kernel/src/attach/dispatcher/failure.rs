//! The meaning of errors from a check or a removal of an attachment.

use std::io;

use crate::sys::call;

/// Tells whether the error of a removal says that nothing is attached, or that no attachment is
/// pinned: another attempt would give the same result.
pub fn is_final(error: &io::Error) -> bool {
    // ENOLINK says that the link's interface was removed.
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENOLINK)
    ) || call::is_unsupported(error)
}

/// Tells whether the cause of the error is outside the attachment, so that another attempt may
/// succeed.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory
    ) || matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOBUFS | libc::EBUSY)
    )
}
