//! Sending of frames of any length through a packet socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};

use crate::netns::Namespace;

/// Sends `count` copies of a frame out of an interface; they arrive at the other end of the pair.
pub fn send_frames(namespace: &Namespace, interface: &str, frame: &[u8], count: u64) -> Result<()> {
    let index = namespace.interface_index(interface)?;
    namespace
        .enter(|| {
            // SAFETY: no pointers are passed.
            let fd =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            ensure!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
            // SAFETY: the kernel has just given us this descriptor.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: all fields are integers; zero is a value of each.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, index as i32);
            for _ in 0..count {
                // SAFETY: frame and address outlive the call and have the lengths that are passed.
                let sent = unsafe {
                    libc::sendto(
                        socket.as_raw_fd(),
                        frame.as_ptr().cast(),
                        frame.len(),
                        0,
                        (&raw const address).cast(),
                        size_of::<libc::sockaddr_ll>() as u32,
                    )
                };
                ensure!(
                    sent == frame.len() as isize,
                    "send a frame: {}",
                    io::Error::last_os_error()
                );
            }
            Ok(())
        })
        .context("enter the namespace")?
}
