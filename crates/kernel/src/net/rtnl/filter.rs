//! Filters under the clsact qdisc.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use aya_obj::generated::{
    TC_H_CLSACT, TC_H_MAJ_MASK, TC_H_MIN_EGRESS, TC_H_MIN_INGRESS, TCA_BPF_FLAG_ACT_DIRECT,
};

use crate::net::rtnl::socket::{NetlinkSocket, Request, attribute, attributes, text, u32_at};

/// The size of `struct tcmsg` (`linux/rtnetlink.h`): family, interface, handle, parent, and a word
/// with a filter's priority and protocol.
const TC_INFO: usize = 20;
const HANDLE: usize = 8;
const PARENT: usize = 12;
const INFO: usize = 16;

const TCA_CHAIN: u16 = 11;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
const EVERY_PROTOCOL: u16 = (libc::ETH_P_ALL as u16).to_be();

const CLSACT: &[u8] = b"clsact\0";
const BPF: &str = "bpf";

/// The ingress or egress side of an interface's clsact qdisc, which holds filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub ifindex: u32,
    pub egress: bool,
}

impl Parent {
    fn body(self) -> [u8; TC_INFO] {
        let minor = if self.egress {
            TC_H_MIN_EGRESS
        } else {
            TC_H_MIN_INGRESS
        };
        body(self.ifindex, 0, TC_H_CLSACT & TC_H_MAJ_MASK | minor, 0)
    }
}

/// The place of a filter among the filters of a parent that take every protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterLocation {
    pub priority: u16,
    pub handle: u32,
}

/// A filter of any kind and owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    pub place: FilterLocation,
    /// True if the filter can share its priority with the daemon's filters.
    pub is_alike: bool,
    /// The id of the program, for a BPF filter.
    pub program: Option<u32>,
}

impl NetlinkSocket {
    /// Makes the qdisc if it is missing. Fails with `EEXIST` if another kind of qdisc is in its
    /// place.
    pub fn add_clsact(&mut self, ifindex: u32) -> io::Result<()> {
        let request = Request::new(
            libc::RTM_NEWQDISC,
            libc::NLM_F_CREATE | libc::NLM_F_EXCL,
            &body(ifindex, TC_H_CLSACT & TC_H_MAJ_MASK, TC_H_CLSACT, 0),
        );
        let added = self.tell(&request.attribute(libc::TCA_KIND, CLSACT));
        // EEXIST may mean that another owner has made the clsact qdisc already.
        if !matches!(&added, Err(error) if error.raw_os_error() == Some(libc::EEXIST)) {
            return added;
        }
        // EEXIST may also mean an ingress qdisc, which has the same place and no egress hook. A
        // request for the clsact qdisc distinguishes them: the kernel answers EINVAL if the kind
        // differs.
        let request = Request::new(libc::RTM_GETQDISC, 0, &body(ifindex, 0, TC_H_CLSACT, 0));
        match self.tell(&request.attribute(libc::TCA_KIND, CLSACT)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => added,
            result => result,
        }
    }

    /// Returns all filters of a parent, in the order in which they run; empty if the parent does
    /// not exist.
    pub fn filters(&mut self, parent: Parent) -> io::Result<Vec<Filter>> {
        self.ask(
            &Request::new(libc::RTM_GETTFILTER, libc::NLM_F_DUMP, &parent.body()),
            filter,
        )
    }

    /// Returns the id of a BPF filter's program; `None` if there is no such filter.
    pub fn filter_program(
        &mut self,
        parent: Parent,
        place: FilterLocation,
    ) -> io::Result<Option<u32>> {
        let request = Request::new(libc::RTM_GETTFILTER, 0, &at(parent, place));
        let asked = self.ask(&request, |payload| filter(payload)?.program);
        match asked.as_ref().map_err(io::Error::raw_os_error) {
            // The errors that say that the filter, qdisc, chain or interface does not exist.
            Err(Some(libc::ENOENT | libc::EINVAL | libc::ENODEV | libc::EOPNOTSUPP)) => Ok(None),
            _ => asked.map(|programs| programs.last().copied()),
        }
    }

    /// Makes a direct-action filter for every protocol. Without a handle (0) the kernel gives a new
    /// one; with a handle, `program` takes the place of the present program between two packets.
    pub fn set_filter(
        &mut self,
        parent: Parent,
        place: FilterLocation,
        name: &str,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let flags = if place.handle == 0 {
            libc::NLM_F_CREATE | libc::NLM_F_EXCL
        } else {
            0
        };
        let options = [
            attribute(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes()),
            attribute(TCA_BPF_NAME, &[name.as_bytes(), b"\0"].concat()),
            attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes()),
        ];
        let request = Request::new(libc::RTM_NEWTFILTER, flags, &at(parent, place))
            .attribute(libc::TCA_KIND, b"bpf\0")
            .attribute(libc::TCA_OPTIONS, &options.concat());
        self.tell(&request)
    }

    pub fn remove_filter(&mut self, parent: Parent, place: FilterLocation) -> io::Result<()> {
        self.tell(&Request::new(libc::RTM_DELTFILTER, 0, &at(parent, place)))
    }
}

fn at(parent: Parent, place: FilterLocation) -> [u8; TC_INFO] {
    let mut out = parent.body();
    let info = u32::from(place.priority) << 16 | u32::from(EVERY_PROTOCOL);
    out[HANDLE..PARENT].copy_from_slice(&place.handle.to_ne_bytes());
    out[INFO..].copy_from_slice(&info.to_ne_bytes());
    out
}

fn body(ifindex: u32, handle: u32, parent: u32, info: u32) -> [u8; TC_INFO] {
    let mut out = [0; TC_INFO];
    for (at, value) in [
        (4, ifindex),
        (HANDLE, handle),
        (PARENT, parent),
        (INFO, info),
    ] {
        out[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    out
}

/// Parses a filter; `None` for filters outside of chain 0, which packets reach only through other
/// filters. The kernel lists the holder of a priority's filters as a filter without a handle.
fn filter(payload: &[u8]) -> Option<Filter> {
    let (handle, info) = (u32_at(payload, HANDLE)?, u32_at(payload, INFO)?);
    let (mut is_bpf, mut program) = (false, None);
    for (kind, value) in attributes(payload.get(TC_INFO..).unwrap_or_default()) {
        match kind {
            libc::TCA_KIND => is_bpf = text(value) == BPF,
            TCA_CHAIN if u32_at(value, 0) != Some(0) => return None,
            libc::TCA_OPTIONS => {
                program = attributes(value)
                    .find(|(kind, _)| *kind == TCA_BPF_ID)
                    .and_then(|(_, id)| u32_at(id, 0));
            }
            _ => {}
        }
    }
    let is_alike = is_bpf && info as u16 == EVERY_PROTOCOL;
    let place = FilterLocation {
        priority: (info >> 16) as u16,
        handle,
    };
    Some(Filter {
        place,
        is_alike,
        program: program.filter(|_| is_bpf),
    })
}
