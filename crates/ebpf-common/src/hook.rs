//! Where in the packet path a program runs, and what its verdict counts for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which way the packets go that a program sees; in the order of configurations and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Packets that the interface receives.
    Ingress,
    /// Packets that the interface sends.
    Egress,
}

impl Direction {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The name used in configurations, documents and stored windows.
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
    /// Native where the driver has it, else generic.
    Auto,
    Native,
    Generic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes whatever the program returns.
    Observe,
    Enforce,
}

/// Where the dispatcher stands among other owners' TC programs on the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    First,
    #[default]
    Last,
}

impl XdpMode {
    pub const ALL: [Self; 3] = [Self::Auto, Self::Native, Self::Generic];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl Verdict {
    pub const ALL: [Self; 2] = [Self::Observe, Self::Enforce];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

impl Position {
    pub const ALL: [Self; 2] = [Self::First, Self::Last];

    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
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
        assert!(Direction::ALL.is_sorted(), "documents show the ingress first");
    }
}
