//! A packet socket, and a check of IPv4 checksums that shares no code with the generator.
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Result, ensure};
use twinprobe_tests::Namespace;

const ETH_P_ALL: u16 = 0x0003;

/// A socket that receives everything that an interface receives.
pub struct Capture(OwnedFd);

impl Capture {
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Self> {
        let name = std::ffi::CString::new(interface)?;
        Ok(namespace.enter(|| {
            // SAFETY: no pointers.
            let fd = unsafe {
                libc::socket(
                    libc::AF_PACKET,
                    libc::SOCK_RAW,
                    i32::from(ETH_P_ALL.to_be()),
                )
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the kernel has just given us this descriptor.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            // A frame of any length occupies a whole page of the buffer.
            let space: libc::c_int = 16 << 20;
            let size = size_of::<libc::c_int>() as u32;
            // SAFETY: the value outlives the call and its true size is given.
            let set = unsafe {
                libc::setsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    libc::SO_RCVBUFFORCE,
                    (&raw const space).cast(),
                    size,
                )
            };
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: all-zero is a valid sockaddr_ll.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = ETH_P_ALL.to_be();
            // SAFETY: the name is NUL-terminated.
            address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
            let size = size_of::<libc::sockaddr_ll>() as u32;
            // SAFETY: the address outlives the call and its true size is given.
            let bound = unsafe { libc::bind(fd, (&raw const address).cast(), size) };
            if bound == 0 {
                Ok(Self(socket))
            } else {
                Err(io::Error::last_os_error())
            }
        })??)
    }

    /// Returns the next `count` frames, without VLAN tag, or fewer frames if none arrives for a
    /// second.
    pub fn frames(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let mut poll = libc::pollfd {
                fd: self.0.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd, which outlives the call.
            if unsafe { libc::poll(&raw mut poll, 1, 1000) } != 1 {
                break;
            }
            let mut frame = vec![0; 4096];
            // SAFETY: the buffer is writable for the length given.
            let n = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            ensure!(n >= 0, "recv: {}", io::Error::last_os_error());
            frame.truncate(n as usize);
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Tells whether the checksums of an untagged IPv4 frame with TCP, UDP or ICMP are right: the sum
/// over the bytes that a checksum covers is all ones.
pub fn checksums_are_right(frame: &[u8]) -> bool {
    let ip = &frame[14..];
    let header = usize::from(ip[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let (transport, protocol) = (&ip[header..total], ip[9]);
    let mut covered = transport.to_vec();
    if covered.len() % 2 == 1 {
        covered.push(0);
    }
    if protocol != 1 {
        covered.extend(&ip[12..20]);
        covered.extend([0, protocol]);
        covered.extend((transport.len() as u16).to_be_bytes());
    }
    sum(&ip[..header]) == 0xffff && sum(&covered) == 0xffff
}

fn sum(bytes: &[u8]) -> u64 {
    let total: u64 = bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(word[1]))
        .sum();
    (0..4).fold(total, |sum, _| (sum & 0xffff) + (sum >> 16))
}
