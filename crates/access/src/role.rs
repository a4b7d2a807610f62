//! The roles of clients.

use std::fmt;

/// The role of a client. Each role has all rights of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Role {
    /// Reads everything about probes except their sources.
    Viewer,
    /// Reads metrics, windows and events, and acknowledges windows.
    Collector,
    /// Deploys, replaces and removes probes that observe; sees sources.
    Operator,
    /// Deploys probes that decide about packets or write them.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Collector, Self::Operator, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Collector => "collector",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
