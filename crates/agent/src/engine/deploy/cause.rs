//! The causes of deployments and their effects.

use twinprobe_serve::Who;

use crate::store::record::StoredProbe;

/// The effect of a PUT on the list of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployed {
    Created,
    Replaced,
    /// The probe runs with this configuration already.
    Unchanged,
}

/// The cause of a deployment.
#[derive(Debug)]
pub enum Cause {
    /// The request of this sender, who may have said why.
    Request(Who, Option<String>),
    /// A start. The stored probe does not run, and goes on with the same revision.
    Start(Box<StoredProbe>),
}
