//! Route netlink (`rtnetlink(7)`): requests, and notifications about links.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{io, thread};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::net::netns::Netns;

/// The alignment of messages and of attributes, in bytes.
const ALIGNMENT: usize = 4;
const HEADER: usize = size_of::<libc::nlmsghdr>();
pub const LINK_INFO: usize = size_of::<libc::ifinfomsg>();
const ATTRIBUTE: usize = size_of::<libc::rtattr>();
/// The size of the buffer for answers. The kernel writes dumps in pieces of at most 32 KiB.
const BUFFER: usize = 64 << 10;
/// The number of attempts at a list that changes while the kernel writes it.
const ATTEMPTS: u32 = 16;
/// The pause before the second attempt; each further pause is twice as long, up to the longest one.
const PAUSE: Duration = Duration::from_micros(250);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// One link (network interface) in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Alternative names (`ip link property`) of the link.
    pub alternatives: BTreeSet<String>,
}

/// A notification of the kernel, with the parts that a watch needs.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// The link is new, or one of its properties has changed.
    Here(Link),
    /// The link with this index was deleted, or moved to another namespace.
    Gone(u32),
    /// Filters or queueing disciplines of a link have changed.
    Filters,
    Other,
}

/// A netlink socket. It stays in its first namespace, even if another thread uses it.
#[derive(Debug)]
pub struct NetlinkSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl NetlinkSocket {
    pub fn open(netns: &Netns) -> io::Result<Self> {
        netns.run(Self::here)?
    }

    /// Opens a socket that never blocks and receives notifications about the changes in `groups`.
    pub fn subscribe(netns: &Netns, groups: u32) -> io::Result<Self> {
        netns.run(|| Self::bound(groups, SocketFlags::NONBLOCK))?
    }

    /// Opens a socket in the namespace of the calling thread, without notifications.
    pub fn here() -> io::Result<Self> {
        Self::bound(0, SocketFlags::empty())
    }

    fn bound(groups: u32, flags: SocketFlags) -> io::Result<Self> {
        let flags = flags | SocketFlags::CLOEXEC;
        // Without a number the protocol is NETLINK_ROUTE.
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self {
            fd,
            buffer: vec![0; BUFFER],
            sequence: 0,
        })
    }

    /// Receives the messages of one datagram. Fails with [`io::ErrorKind::InvalidData`] if the
    /// datagram is larger than the buffer, and with `ENOBUFS` if messages were lost.
    pub fn receive(&mut self) -> io::Result<Vec<Message>> {
        self.datagram().map(messages)
    }

    fn datagram(&mut self) -> io::Result<&[u8]> {
        let receive = || rustix::net::recv(&self.fd, self.buffer.as_mut_slice(), RecvFlags::TRUNC);
        let (_, length) = rustix::io::retry_on_intr(receive)?;
        self.buffer
            .get(..length)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sends a request and returns the results of `answer` for the payloads. Fails unless the list
    /// is complete and shows one moment.
    pub fn ask<T>(
        &mut self,
        request: &Request,
        answer: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        undisturbed(|| self.ask_once(request, &answer))
    }

    /// Sends a request whose only answer is an acknowledgement.
    pub fn tell(&mut self, request: &Request) -> io::Result<()> {
        self.ask(request, |_| None::<()>).map(drop)
    }

    /// Makes one attempt of [`Self::ask`]. Fails with [`io::ErrorKind::Interrupted`] if the listed
    /// objects have changed during the list.
    fn ask_once<T>(
        &mut self,
        request: &Request,
        answer: &impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        rustix::net::send(&self.fd, &request.finish(sequence), SendFlags::empty())?;
        let (mut answers, mut torn) = (Vec::new(), false);
        loop {
            for (header, payload) in
                parts(self.datagram()?).filter(|(header, _)| header.sequence == sequence)
            {
                torn |= i32::from(header.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(header.kind) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                        // Messages of both kinds end the answer, and both may say that the answer
                        // is not complete.
                        return match error_of(payload) {
                            Some(code) => Err(io::Error::from_raw_os_error(code)),
                            None if torn => Err(io::ErrorKind::Interrupted.into()),
                            None => Ok(answers),
                        };
                    }
                    _ => answers.extend(answer(payload)),
                }
            }
        }
    }
}

impl AsRawFd for NetlinkSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Lists all links of a namespace at one moment, by index.
pub fn list(netns: &Netns) -> io::Result<BTreeMap<u32, Link>> {
    let mut socket = NetlinkSocket::open(netns)?;
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK_INFO]);
    let links = socket.ask(&request, |payload| {
        match message(libc::RTM_NEWLINK, payload) {
            Message::Here(link) => Some((link.index, link)),
            _ => None,
        }
    })?;
    Ok(links.into_iter().collect())
}

/// Repeats a request that a change has interrupted, up to [`ATTEMPTS`] times in all.
fn undisturbed<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match ask() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    ask()
}

/// Returns the error code in an acknowledgement or at the end of a dump; `None` for success.
fn error_of(payload: &[u8]) -> Option<i32> {
    match u32_at(payload, 0) {
        Some(0) => None,
        Some(code) => Some((code as i32).wrapping_neg()),
        None => Some(libc::EIO),
    }
}

/// A request to the kernel. The end of the answer is a separate message.
#[derive(Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// Makes a request; `body` is the structure that follows the header.
    pub fn new(kind: u16, flags: libc::c_int, body: &[u8]) -> Self {
        let dump = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        let flags = libc::NLM_F_REQUEST | flags | if dump { 0 } else { libc::NLM_F_ACK };
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags as u16).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        Self(bytes)
    }

    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self
    }

    fn finish(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = self.0.clone();
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }
}

pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(aligned(out.len()), 0);
    out
}

/// The fields of a `nlmsghdr` that this module uses.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

/// Returns the messages of a datagram with their payloads, up to an incomplete message.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let (kind, flags, sequence) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?, u32_at(bytes, 8)?);
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((
            Header {
                kind,
                flags,
                sequence,
            },
            payload,
        ))
    })
}

fn messages(bytes: &[u8]) -> Vec<Message> {
    parts(bytes)
        .map(|(header, payload)| message(header.kind, payload))
        .collect()
}

fn message(kind: u16, payload: &[u8]) -> Message {
    // Messages of another address family come from bridges, and are about their ports: a port that
    // was released still exists.
    let is_link = payload.first() == Some(&(libc::AF_UNSPEC as u8));
    let (Some(index), true) = (u32_at(payload, 4), is_link) else {
        return Message::Other;
    };
    match kind {
        libc::RTM_DELLINK => Message::Gone(index),
        libc::RTM_NEWLINK => link(index, payload.get(LINK_INFO..).unwrap_or_default()),
        libc::RTM_NEWTFILTER | libc::RTM_DELTFILTER | libc::RTM_NEWQDISC | libc::RTM_DELQDISC => {
            Message::Filters
        }
        _ => Message::Other,
    }
}

fn link(index: u32, bytes: &[u8]) -> Message {
    let mut link = Link {
        index,
        name: String::new(),
        alternatives: BTreeSet::new(),
    };
    for (kind, value) in attributes(bytes) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_PROP_LIST => {
                let names = attributes(value).filter(|(kind, _)| *kind == libc::IFLA_ALT_IFNAME);
                link.alternatives
                    .extend(names.map(|(_, value)| text(value)));
            }
            _ => {}
        }
    }
    // Some notifications are about a part of a link only, and have no name.
    if link.name.is_empty() {
        Message::Other
    } else {
        Message::Here(link)
    }
}

/// Returns the kind and the value of each attribute in `bytes`.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        // The two highest bits say how the value is written.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the text in `value` up to the NUL.
pub fn text(value: &[u8]) -> String {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the number at offset `at`, in the machine's byte order; `None` if `bytes` is too short.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
