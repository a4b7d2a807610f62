//! Links by netlink: what is there, and what is told of them.

pub mod filter;
pub mod xdp;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::netns::Netns;

/// Messages are aligned to it, and so are attributes.
const ALIGNMENT: usize = 4;
const HEADER: usize = size_of::<libc::nlmsghdr>();
const LINK_INFO: usize = size_of::<libc::ifinfomsg>();
const ATTRIBUTE: usize = size_of::<libc::rtattr>();
/// The kernel writes dumps in pieces of at most 32 KiB.
const BUFFER: usize = 64 << 10;
/// How often a list that changed while it was told is asked for again.
const ATTEMPTS: usize = 16;

/// What a message says of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Further names, by which it can be found as well.
    pub alternatives: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// There is such a link: it is new, or something of it changed.
    Here(Link),
    /// Deleted, or moved to another namespace.
    Gone(u32),
    Error(i32),
    Done,
    /// The list that this belongs to is not one of a single moment.
    Torn,
    Other,
}

/// A socket inside a namespace; it stays there whatever thread uses it.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// Of the last request.
    sequence: u32,
}

impl Socket {
    /// `groups`: what it is told without asking.
    pub fn open(netns: &Netns, groups: u32, flags: libc::c_int) -> io::Result<Self> {
        let fd = netns.run(|| bound(groups, flags))??;
        Ok(Self::of(fd))
    }

    /// In the namespace of the calling thread.
    pub fn here() -> io::Result<Self> {
        bound(0, 0).map(Self::of)
    }

    fn of(fd: OwnedFd) -> Self {
        Self { fd, buffer: vec![0; BUFFER], sequence: 0 }
    }

    /// One datagram's messages. [`io::ErrorKind::InvalidData`]: it was larger than anything that is expected;
    /// `ENOBUFS`: messages are missing.
    pub fn receive(&mut self) -> io::Result<Vec<Message>> {
        self.datagram().map(messages)
    }

    fn datagram(&mut self) -> io::Result<&[u8]> {
        let (buffer, length) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
        // SAFETY: the buffer is writable for the length that is given.
        let received = unsafe { libc::recv(self.fd.as_raw_fd(), buffer, length, libc::MSG_TRUNC) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.buffer.get(..received).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sends a request and gives the payloads of what answers it to `answer`, up to the end.
    fn ask(&mut self, request: Request, mut answer: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        self.send(&request.finish(sequence))?;
        loop {
            for (header, payload) in parts(self.datagram()?).filter(|(header, _)| header.sequence == sequence)
            {
                match (i32::from(header.kind), u32_at(payload, 0)) {
                    (libc::NLMSG_DONE, _) | (libc::NLMSG_ERROR, Some(0)) => return Ok(()),
                    (libc::NLMSG_ERROR, code) => {
                        let code = code.map_or(libc::EIO, |code| (code as i32).wrapping_neg());
                        return Err(io::Error::from_raw_os_error(code));
                    }
                    _ => answer(payload),
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the bytes are readable for the length that is given.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }
}

/// All links of a namespace, by index.
pub fn list(netns: &Netns) -> io::Result<BTreeMap<u32, Link>> {
    let mut last = io::Error::other("the list of links changes all the time");
    for _ in 0..ATTEMPTS {
        match list_once(netns) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => last = error,
            result => return result,
        }
    }
    Err(last)
}

/// [`io::ErrorKind::Interrupted`] if links changed meanwhile.
fn list_once(netns: &Netns) -> io::Result<BTreeMap<u32, Link>> {
    let mut socket = Socket::open(netns, 0, 0)?;
    socket.send(&Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK_INFO]).finish(0))?;
    let mut links = BTreeMap::new();
    loop {
        for message in socket.receive()? {
            match message {
                Message::Here(link) => drop(links.insert(link.index, link)),
                Message::Torn => return Err(io::ErrorKind::Interrupted.into()),
                Message::Error(code) => return Err(io::Error::from_raw_os_error(code)),
                Message::Done => return Ok(links),
                Message::Gone(_) | Message::Other => {}
            }
        }
    }
}

fn bound(groups: u32, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags, libc::NETLINK_ROUTE)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made and is owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: of all zeros every field is valid.
    let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and its true size is given.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// A message to the kernel, which is answered by one that ends the answers.
#[derive(Debug)]
struct Request(Vec<u8>);

impl Request {
    /// `body` is the structure that follows the header.
    fn new(kind: u16, flags: libc::c_int, body: &[u8]) -> Self {
        let dump = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        let flags = libc::NLM_F_REQUEST | flags | if dump { 0 } else { libc::NLM_F_ACK };
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags as u16).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        Self(bytes)
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(aligned(out.len()), 0);
    out
}

/// What is used of a `nlmsghdr`.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

/// The messages of a datagram, with their payloads. What is cut short ends the list.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let (kind, flags, sequence) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?, u32_at(bytes, 8)?);
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((Header { kind, flags, sequence }, payload))
    })
}

fn messages(bytes: &[u8]) -> Vec<Message> {
    let mut out = Vec::new();
    for (header, payload) in parts(bytes) {
        if i32::from(header.flags) & libc::NLM_F_DUMP_INTR != 0 {
            out.push(Message::Torn);
        }
        out.push(message(header.kind, payload));
    }
    out
}

fn message(kind: u16, payload: &[u8]) -> Message {
    match i32::from(kind) {
        libc::NLMSG_DONE => return Message::Done,
        // 0 is an acknowledgement.
        libc::NLMSG_ERROR => {
            return match u32_at(payload, 0) {
                Some(code) if code != 0 => Message::Error((code as i32).wrapping_neg()),
                _ => Message::Other,
            };
        }
        _ => {}
    }
    // Of other families is what bridges say of their ports: a port that is released is not gone.
    let is_link = payload.first() == Some(&(libc::AF_UNSPEC as u8));
    let (Some(index), true) = (u32_at(payload, 4), is_link) else { return Message::Other };
    match kind {
        libc::RTM_DELLINK => Message::Gone(index),
        libc::RTM_NEWLINK => link(index, payload.get(LINK_INFO..).unwrap_or_default()),
        _ => Message::Other,
    }
}

fn link(index: u32, bytes: &[u8]) -> Message {
    let mut link = Link { index, name: String::new(), alternatives: BTreeSet::new() };
    for (kind, value) in attributes(bytes) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_PROP_LIST => {
                let names = attributes(value).filter(|(kind, _)| *kind == libc::IFLA_ALT_IFNAME);
                link.alternatives.extend(names.map(|(_, value)| text(value)));
            }
            _ => {}
        }
    }
    // Some notifications are about a part of a link only.
    if link.name.is_empty() { Message::Other } else { Message::Here(link) }
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        // The two highest bits say how the value is written.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Up to the NUL.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_link(kind: u16, family: u8, index: u32, attributes: &[u8]) -> Vec<u8> {
        let mut out = ((HEADER + LINK_INFO + attributes.len()) as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.resize(HEADER, 0);
        out.extend([family, 0, 0, 0]);
        out.extend(index.to_ne_bytes());
        out.resize(HEADER + LINK_INFO, 0);
        out.extend(attributes);
        out
    }

    #[test]
    fn messages_are_told_apart() {
        let names = [
            attribute(libc::IFLA_IFNAME, b"eth0\0"),
            attribute(libc::IFLA_PROP_LIST | 0x8000, &attribute(libc::IFLA_ALT_IFNAME, b"enp0s3\0")),
        ];
        let mut bytes = of_link(libc::RTM_NEWLINK, 0, 7, &names.concat());
        bytes.extend(of_link(libc::RTM_DELLINK, libc::AF_BRIDGE as u8, 7, &[]));
        bytes.extend(of_link(libc::RTM_DELLINK, 0, 8, &[]));
        bytes.extend(of_link(libc::RTM_NEWLINK, 0, 9, &[]));
        let alternatives = ["enp0s3".to_owned()].into();
        let link = Link { index: 7, name: "eth0".to_owned(), alternatives };
        assert_eq!(messages(&bytes), [Message::Here(link), Message::Other, Message::Gone(8), Message::Other]);
        for cut in 0..bytes.len() {
            messages(&bytes[..cut]);
            let mut longer = bytes.clone();
            longer[cut] = 0xff;
            messages(&longer);
            longer[cut] = 0;
            messages(&longer);
        }
    }
}
