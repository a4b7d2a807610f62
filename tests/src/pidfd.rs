//! Signals to a process, and waiting for it, by a descriptor that names no other process when it
//! has ended.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

/// Opens a child for which no process has waited yet.
pub fn open_pidfd(pid: u32) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes no pointers; the process is our child and not yet waited for.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    ensure!(fd >= 0, "pidfd_open: {}", io::Error::last_os_error());
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends a signal. Does nothing if the process has ended.
pub fn send_signal(pidfd: &OwnedFd, signal: i32) {
    // SAFETY: the only pointer is null, which asks for the default siginfo.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            0usize,
            0,
        )
    };
}

/// Waits until all threads of the child have stopped, or the child has ended. On a busy machine the
/// others continue until the thread that gets the signal has a processor.
pub fn wait_for_stop(pidfd: &OwnedFd) {
    let (descriptor, options) = (
        pidfd.as_raw_fd(),
        libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT,
    );
    // SAFETY: a siginfo_t may be all zeros.
    let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
    // SAFETY: `info` outlives the call.
    while unsafe {
        libc::waitid(
            libc::P_PIDFD,
            descriptor as libc::id_t,
            &raw mut info,
            options,
        )
    } != 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Waits for the process to end. Returns false for a process that still runs at the limit.
pub fn wait_for_exit(pidfd: &OwnedFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: pidfd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, which outlives the call.
        match unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) } {
            1 => return true,
            0 => return false,
            // A signal has interrupted the call.
            _ => {}
        }
    }
}
