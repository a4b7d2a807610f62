//! Interfaces whose other end is in another network namespace. When the kernel lists such an
//! interface, it gives a number of the other namespace.

use std::collections::BTreeMap;
use std::io;

use crate::net::rtnl::socket::{LINK_INFO, NetlinkSocket, Request, attributes, text, u32_at};

/// `RTM_GETNSID` and its attributes (`linux/rtnetlink.h`, `linux/net_namespace.h`).
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_PID: u16 = 2;
/// The size of `struct rtgenmsg`, aligned.
const GENERAL: usize = 4;

/// Lists the interfaces that lead to other namespaces, by the numbers of these namespaces: names
/// and indices.
pub fn leading_away(socket: &mut NetlinkSocket) -> io::Result<BTreeMap<u32, Vec<(String, u32)>>> {
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK_INFO]);
    let links = socket.ask(&request, |payload| {
        let is_link = payload.first() == Some(&(libc::AF_UNSPEC as u8));
        let index = u32_at(payload, 4).filter(|_| is_link)?;
        let (mut name, mut number) = (None, None);
        for (kind, value) in attributes(payload.get(LINK_INFO..)?) {
            match kind {
                libc::IFLA_IFNAME => name = Some(text(value)),
                libc::IFLA_LINK_NETNSID => number = u32_at(value, 0),
                _ => {}
            }
        }
        Some((known(number)?, (name?, index)))
    })?;
    let mut by_number: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (number, link) in links {
        by_number.entry(number).or_default().push(link);
    }
    Ok(by_number)
}

/// Returns the number that the socket's namespace has for the namespace of a process; `None` if it
/// has no number, or if the process has ended. This needs no privilege, unlike `/proc/PID/ns/net`.
pub fn number_of(socket: &mut NetlinkSocket, pid: u32) -> io::Result<Option<u32>> {
    let request =
        Request::new(RTM_GETNSID, 0, &[0; GENERAL]).attribute(NETNSA_PID, &pid.to_ne_bytes());
    let answered = socket.ask(&request, |payload| {
        attributes(payload.get(GENERAL..)?)
            .find(|(kind, _)| *kind == NETNSA_NSID)
            .map(|(_, value)| u32_at(value, 0))
    });
    match answered {
        Ok(numbers) => Ok(known(numbers.into_iter().next().flatten())),
        // The answer for a process that does not exist.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts a number; -1 (`NETNSA_NSID_NOT_ASSIGNED`) means that there is no number.
fn known(number: Option<u32>) -> Option<u32> {
    number.filter(|number| i32::try_from(*number).is_ok())
}
