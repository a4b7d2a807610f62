//! Hook points, where packets meet a dispatcher, and the names of their pins.

use std::io;

use twinprobe_ebpf_common::hook::{Hook, Position};

use crate::attach::hook::error::AttachError;
use crate::net::netns::Netns;

/// A hook of an interface.
#[derive(Clone, Debug)]
pub struct HookPoint {
    pub netns: Netns,
    pub interface: String,
    pub ifindex: u32,
    pub hook: Hook,
    /// The position among other owners' programs, which only TC has.
    pub position: Position,
}

/// The identity of a place: the namespace, the interface index, the hook's name, and a flag that is
/// true for [`Position::First`]. The interface's name is not a part of the identity, because names
/// change.
pub type HookKey = (u64, u32, &'static str, bool);

impl HookPoint {
    pub fn key(&self) -> HookKey {
        let first = self.hook.has_positions() && self.position == Position::First;
        (self.netns.id(), self.ifindex, self.hook.name(), first)
    }

    /// Converts the error of a system call into the error of an attachment at this place.
    pub fn failed(&self, source: io::Error) -> AttachError {
        AttachError::Failed {
            hook: self.hook.name(),
            interface: self.interface.clone(),
            source,
        }
    }

    pub fn pin_name(&self) -> String {
        let (netns, ifindex, hook, first) = self.key();
        let position = if first { "first" } else { "last" };
        format!("{netns}_{ifindex}_{hook}_{position}")
    }
}

impl PartialEq for HookPoint {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for HookPoint {}

/// Returns the place whose pins are in a directory of this name; `None` for other names.
pub fn parse_pin_name(name: &str) -> Option<HookKey> {
    let mut parts = name.splitn(4, '_');
    let mut next = || parts.next();
    let (netns, ifindex, hook, position) = (next()?, next()?, next()?, next()?);
    let first = match position {
        "first" => true,
        "last" => false,
        _ => return None,
    };
    Some((
        netns.parse().ok()?,
        ifindex.parse().ok()?,
        Hook::from_name(hook)?.name(),
        first,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_names_its_place() {
        let netns = Netns::own().unwrap();
        let place = HookPoint {
            netns,
            interface: "lo".into(),
            ifindex: 1,
            hook: Hook::TcEgress,
            position: Position::First,
        };
        assert_eq!(parse_pin_name(&place.pin_name()), Some(place.key()));
        for bad in ["1_xdp", "1_2_tcp_last", "x_2_xdp_last", "1_2_xdp_middle"] {
            assert_eq!(parse_pin_name(bad), None, "{bad}");
        }
    }
}
