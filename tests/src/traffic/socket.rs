//! A socket that sends and receives whole frames.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// The option that hides this machine's own packets from a socket (`linux/if_packet.h`).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A socket that sends whole frames from one interface, on any kernel.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket for `interface` of this thread's namespace.
    pub fn open(interface: &str) -> Result<Self> {
        // A socket with protocol 0 receives nothing.
        Self::bound(interface, 0)
    }

    /// Opens a socket that receives all packets at `interface` of this thread's namespace, and
    /// never blocks.
    pub fn receiving(interface: &str) -> Result<Self> {
        let socket = Self::bound(interface, (libc::ETH_P_ALL as u16).to_be())?;
        socket
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20)
            .context("SO_RCVBUFFORCE")?;
        socket
            .set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            .context("PACKET_IGNORE_OUTGOING")?;
        Ok(socket)
    }

    /// Opens a socket whose frames begin with a `struct virtio_net_hdr`, which tells the kernel how
    /// to cut them.
    pub fn uncut(interface: &str) -> Result<Self> {
        let socket = Self::bound(interface, 0)?;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .context("PACKET_VNET_HDR")?;
        Ok(socket)
    }

    fn bound(interface: &str, protocol: u16) -> Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        ensure!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
        // SAFETY: the kernel has just given us this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = CString::new(interface)?;
        // SAFETY: the name is NUL-terminated and outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        ensure!(
            index != 0,
            "interface {interface}: {}",
            io::Error::last_os_error()
        );
        // SAFETY: a structure of integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = i32::try_from(index).context("an interface index")?;
        // SAFETY: a live address of the length that is passed.
        let bound = unsafe {
            libc::bind(
                fd,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        ensure!(
            bound == 0,
            "bind to {interface}: {}",
            io::Error::last_os_error()
        );
        Ok(Self(socket))
    }

    /// Marks the packets of this socket from now on, as a firewall would.
    pub fn mark(&self, mark: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_MARK, mark)
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: u32) -> io::Result<()> {
        // SAFETY: a live number of the length that is passed.
        let set = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<u32>() as libc::socklen_t,
            )
        };
        if set == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Waits until a frame is there, for this long at most.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let mut asked = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
        };
        // SAFETY: one live structure, a live time, and no signals.
        match unsafe { libc::ppoll(&raw mut asked, 1, &raw const limit, std::ptr::null()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Receives one frame and returns its length; `None` if there is none now.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the buffer is live and of the length that is passed.
        let received = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match usize::try_from(received) {
            Ok(length) => Ok(Some(length)),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Sends one frame. Kernels that report a full queue report it as `ENOBUFS`; others drop the
    /// frame silently.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer is live and of the length that is passed.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent == frame.len() as isize {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
