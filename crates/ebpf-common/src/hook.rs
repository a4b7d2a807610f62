//! The places in the packet path where programs run, and the effects of verdicts there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The direction of the packets that a program sees. The order is that of configurations and
/// documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Packets that the interface receives.
    Ingress,
    /// Packets that the interface sends.
    Egress,
}

impl Direction {
    /// Both directions, ingress first.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// Returns the name in configurations, documents and stored windows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// Native mode if the driver has it, or else generic mode.
    Auto,
    Native,
    Generic,
}

/// The kind of an XDP program. The kernel allows tail calls only between programs of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum XdpKind {
    /// A program for packets of a single buffer.
    Single,
    /// A program for packets of several buffers.
    Frags,
    /// A program for packets of a single buffer that is called through an extension of libxdp's
    /// dispatcher. It has no attach type.
    Joined,
}

impl XdpKind {
    /// Returns the kind of programs that take packets of several buffers (`frags`), or that were
    /// loaded beside libxdp (`joined`).
    pub const fn of(frags: bool, joined: bool) -> Self {
        match (frags, joined) {
            (_, true) => Self::Joined,
            (true, false) => Self::Frags,
            (false, false) => Self::Single,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes, whatever verdict the program returns.
    Observe,
    Enforce,
}

/// The position of the dispatcher among the TC programs of other owners on the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    First,
    #[default]
    Last,
}

impl XdpMode {
    /// The names of the positions in configurations.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("native", Self::Native),
        ("generic", Self::Generic),
    ];
}

impl Verdict {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 2] =
        [("observe", Self::Observe), ("enforce", Self::Enforce)];
}

impl Position {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 2] = [("first", Self::First), ("last", Self::Last)];
}

/// The type of a probe's program in the kernel. Like hooks, types can be matched, but not compared.
#[derive(Clone, Copy, Debug)]
pub enum ProgramKind {
    Xdp,
    Tc,
}

impl ProgramKind {
    /// Tells whether the context of programs is a `struct __sk_buff`.
    pub const fn has_skb(self) -> bool {
        match self {
            Self::Xdp => false,
            Self::Tc => true,
        }
    }

    pub const fn section(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }

    /// `enum bpf_prog_type`.
    pub const fn prog_type(self) -> u32 {
        match self {
            Self::Xdp => 6,
            Self::Tc => 3,
        }
    }

    /// Returns the value of `enum bpf_attach_type`. A prog-array refuses programs whose attach
    /// types differ.
    pub const fn expected_attach_type(self) -> u32 {
        match self {
            // BPF_XDP
            Self::Xdp => 37,
            Self::Tc => 0,
        }
    }
}

/// A place where packets pass on an interface, in the kernel's terms.
///
/// Hooks can't be compared with `==`: such a comparison would silently decide for each hook that is
/// added later, while a `match` makes the compiler ask. Compare [`Hook::name`] to find out whether
/// two hooks are the same.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    Xdp,
    TcIngress,
    TcEgress,
}

impl From<Hook> for Direction {
    fn from(hook: Hook) -> Self {
        match hook {
            Hook::Xdp | Hook::TcIngress => Self::Ingress,
            Hook::TcEgress => Self::Egress,
        }
    }
}

impl Hook {
    pub const ALL: [Self; 3] = [Self::Xdp, Self::TcIngress, Self::TcEgress];

    pub const fn kind(self) -> ProgramKind {
        match self {
            Self::Xdp => ProgramKind::Xdp,
            Self::TcIngress | Self::TcEgress => ProgramKind::Tc,
        }
    }

    /// Returns the hooks of a direction with their names in configurations. The first hook is the
    /// default.
    pub const fn choices(direction: Direction) -> &'static [(&'static str, Self)] {
        match direction {
            Direction::Ingress => &[("xdp", Self::Xdp), ("tc", Self::TcIngress)],
            Direction::Egress => &[("tc", Self::TcEgress)],
        }
    }

    /// Returns the name that configurations use for the direction.
    pub fn direction(self) -> &'static str {
        Direction::from(self).name()
    }

    /// Returns the name that pins and messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::TcIngress => "tc-ingress",
            Self::TcEgress => "tc-egress",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == name)
    }

    /// Tells whether programs at the hook have a mode: native or generic.
    pub const fn has_modes(self) -> bool {
        match self.kind() {
            ProgramKind::Xdp => true,
            ProgramKind::Tc => false,
        }
    }

    /// Tells whether programs of several owners can run at the hook, in an order.
    pub const fn has_positions(self) -> bool {
        match self.kind() {
            ProgramKind::Xdp => false,
            ProgramKind::Tc => true,
        }
    }

    /// Returns the verdict that lets a packet pass on, to the programs of other owners as well.
    pub const fn pass(self) -> i32 {
        match self.kind() {
            // XDP_PASS
            ProgramKind::Xdp => 2,
            // TCX_NEXT, which is TC_ACT_UNSPEC under clsact: TC_ACT_OK would end other owners'
            // chains.
            ProgramKind::Tc => -1,
        }
    }

    /// Returns the verdicts that end a packet's way when they are enforced, in ascending order;
    /// with any other verdict the packet passes on. `None` if all verdicts except [`Self::pass`]
    /// end it.
    pub const fn final_verdicts(self) -> Option<&'static [i32]> {
        match self.kind() {
            ProgramKind::Xdp => None,
            // TC_ACT_SHOT, STOLEN, QUEUED, REDIRECT, TRAP.
            ProgramKind::Tc => Some(&[2, 4, 5, 7, 8]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_stored_and_shown_by_their_names() {
        for direction in Direction::ALL {
            assert_eq!(serde_json::to_value(direction).unwrap(), direction.name());
            assert_eq!(direction.to_string(), direction.name());
        }
        assert!(
            Direction::ALL.is_sorted(),
            "documents show the ingress first"
        );
    }
}
