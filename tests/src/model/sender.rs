//! Senders of packets whose source address is their number.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::ledger::Key;
use super::spec::{KEYS, SHIFT};
use crate::netns::Namespace;
use crate::traffic::{Frame, Generator, GeneratorOptions, Spread};

/// The time between two packets that are sent during an operation.
const PACE: Duration = Duration::from_micros(150);

/// A socket that sends packets one by one, from any thread, while an operation runs.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    address: libc::sockaddr_ll,
}

impl Socket {
    pub fn new(namespace: &Namespace, interface: &str) -> Result<Self> {
        let index = namespace.interface_index(interface)?;
        namespace.enter(|| {
            // SAFETY: no pointers are passed.
            let fd =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            ensure!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
            // SAFETY: the kernel has just given us this descriptor.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: all fields are integers; zero is a value of each.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, index as i32);
            Ok(Self { fd, address })
        })?
    }

    /// Sends the packet of this number.
    pub fn send(&self, number: u32) -> Result<()> {
        let mut frame = Frame::default().bytes().to_vec();
        frame[26..30].copy_from_slice(&(u32::from(BASE) + number).to_be_bytes());
        // SAFETY: frame and address outlive the call and have the lengths that are passed.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const self.address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        ensure!(
            sent == frame.len() as isize,
            "send a frame: {}",
            io::Error::last_os_error()
        );
        Ok(())
    }

    /// Sends packets of a burst until `done` is set. Returns their number.
    pub fn send_until(&self, key: Key, done: &AtomicBool) -> Result<u64> {
        let mut sent = 0;
        while !done.load(Ordering::Acquire) && sent < (1 << SHIFT) - 1 {
            self.send(key << SHIFT | sent)?;
            sent += 1;
            thread::sleep(PACE);
        }
        Ok(u64::from(sent))
    }
}

const BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

/// Makes a generator of the fixture that sends one burst after the other.
pub fn generator(namespace: &Namespace, interface: &str) -> Result<Generator> {
    let spread = Spread {
        addresses: KEYS << SHIFT,
        ports: 1,
        base_address: BASE,
        base_port: 1024,
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    Generator::new(namespace, interface, options)
}

/// Sends a whole burst.
pub fn burst(generator: &mut Generator, key: Key, packets: u64) -> Result<()> {
    generator.continue_at(key << SHIFT)?;
    generator.send(packets).context("send a burst")
}
