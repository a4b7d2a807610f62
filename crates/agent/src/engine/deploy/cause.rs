//! The causes of deployments and their effects.

use std::collections::BTreeSet;

use serde_json::Value;
use twinprobe_access::Principal;

use crate::store::record::StoredProbe;

/// The occasion on which a probe is deployed or placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A client or a file deploys the probe, and the daemon checks the whole configuration.
    New,
    /// The probe existed before. It continues after a start or a change of interfaces, even if
    /// rules and limits have changed.
    Restored,
}

impl Occasion {
    pub const fn is_new(self) -> bool {
        match self {
            Self::New => true,
            Self::Restored => false,
        }
    }
}

/// The effect of a PUT on the list of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployed {
    Created,
    Replaced,
    /// The probe already runs with this configuration.
    Unchanged,
}

/// The author of a change, with the origin of the request and the reason.
#[derive(Clone, Debug)]
pub struct ChangeAuthor {
    pub principal: Principal,
    /// The other end of the connection, or the file, in the form of the audit log.
    pub from: Value,
    pub message: Option<String>,
}

impl ChangeAuthor {
    /// Returns the author with this reason, unless the author already has one.
    pub fn explained(self, message: impl FnOnce() -> String) -> Self {
        Self {
            message: self.message.or_else(|| Some(message())),
            ..self
        }
    }
}

/// The cause of a deployment.
#[derive(Debug)]
pub enum DeployCause {
    Request {
        author: ChangeAuthor,
        /// The maps that must have exactly the entries of `fill` afterwards.
        anew: BTreeSet<String>,
    },
    /// A start of the daemon. The stored probe does not run, and continues with the same revision.
    Start(Box<StoredProbe>),
}

impl DeployCause {
    pub const fn occasion(&self) -> Occasion {
        match self {
            Self::Request { .. } => Occasion::New,
            Self::Start(_) => Occasion::Restored,
        }
    }
}
