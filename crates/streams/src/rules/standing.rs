//! The state of a rule over a fleet, for readers who show it.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;

/// The reason why a node's windows do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// `daemon`: it does not answer. `probe`: the daemon has no such probe. `collectors`: the
    /// windows are for other collectors.
    pub stage: &'static str,
    pub reason: String,
}

/// The state of a rule. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleStanding {
    /// The nodes whose windows count.
    pub nodes: BTreeSet<String>,
    /// The other daemons, by their names.
    pub absent: BTreeMap<String, NodeFault>,
    /// The nodes at which actions of the last firing, or of its end, have failed. A notification
    /// has no node.
    pub failed: BTreeMap<String, String>,
    /// The nodes at which the actions continue.
    pub acting: BTreeSet<String>,
    /// The end of the period of the last firing.
    pub fired: Option<i64>,
    /// The end of the period at which the actions of the last firing have ended.
    pub ended: Option<i64>,
    /// The reason why no window can be judged at present.
    pub fault: Option<String>,
    /// The reason why the rule has stopped itself.
    pub stopped: Option<String>,
}

/// The sender of a rule's state to all tasks that follow the state.
pub type ShownStanding = watch::Sender<RuleStanding>;

/// Changes the state. Only a real change wakes the tasks that follow the state.
pub fn change(shown: &ShownStanding, with: impl FnOnce(&mut RuleStanding)) {
    shown.send_if_modified(|standing| {
        let before = standing.clone();
        with(standing);
        *standing != before
    });
}
