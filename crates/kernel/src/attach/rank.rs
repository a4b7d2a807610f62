//! The identity of a deployment, and its place in the order of probes.

/// The identity of one deployment of a probe, in all dispatchers that call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentId(pub u64);

/// The order of probes: by priority, then by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub priority: i32,
    pub order: u64,
}
