//! A socket that sends whole frames.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result, ensure};

/// A socket that sends whole frames from one interface, on any kernel.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket for `interface` of this thread's namespace.
    pub fn open(interface: &str) -> Result<Self> {
        // A socket with protocol 0 receives nothing.
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        ensure!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
        // SAFETY: the kernel has just given us this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = CString::new(interface)?;
        // SAFETY: the name is NUL-terminated and outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        ensure!(index != 0, "interface {interface}: {}", io::Error::last_os_error());
        // SAFETY: a structure of integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = i32::try_from(index).context("an interface index")?;
        // SAFETY: a live address of the length that is passed.
        let bound = unsafe {
            libc::bind(fd, (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
        };
        ensure!(bound == 0, "bind to {interface}: {}", io::Error::last_os_error());
        Ok(Self(socket))
    }

    /// Marks the packets of this socket from now on, as a firewall would.
    pub fn mark(&self, mark: u32) -> io::Result<()> {
        // SAFETY: a live number of the length that is passed.
        let set = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MARK,
                (&raw const mark).cast(),
                size_of::<u32>() as libc::socklen_t,
            )
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends one frame. Kernels that report a full queue report it as `ENOBUFS`; others drop the frame silently.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer is live and of the length that is passed.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent == frame.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
