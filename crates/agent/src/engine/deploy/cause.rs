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
    /// The request of this sender.
    Request(Who),
    /// A start. The stored probe does not run, and goes on with the same revision.
    Start(Box<StoredProbe>),
}
