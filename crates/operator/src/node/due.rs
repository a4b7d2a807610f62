//! The times of reports. A node whose probes do not change writes nothing.

use std::time::{Duration, Instant};

use twinprobe_api::{NodeReport, NodeState};
use twinprobe_client::KnownDeployment;

use crate::node::follow::{pause, random};

/// The time for which a daemon that does not answer counts as starting.
pub const STARTING: Duration = Duration::from_secs(20);
/// The time after which a node reports a running probe, even if the probe has not closed its
/// windows.
const EARLY: Duration = Duration::from_secs(10);
/// The shortest time between two reports that differ only in the cost.
const COST: Duration = Duration::from_secs(60);
/// The time between two looks at a probe that needs nothing, at first and at most. Each look that
/// finds nothing to report makes it longer.
pub const REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(40);
/// The shortest time between two attempts.
const SHORTEST: Duration = Duration::from_millis(50);

/// An agent's memory between two looks at a probe. It need not outlive the agent.
#[derive(Debug)]
pub struct Pending {
    /// The revision that the last look was about.
    pub revision: String,
    /// The time since which the present revision runs here, as far as the agent knows.
    pub since: Instant,
    /// The daemon's answers about the revision.
    pub known: KnownDeployment,
    /// The revision whose configuration the agent has put last, and the assignment's renewal at
    /// that time.
    pub put: Option<(String, Option<String>)>,
    /// The refusal of a revision, and the time of the next attempt.
    pub refused: Option<(NodeReport, Instant)>,
    /// The time for the next report.
    pub report_at: Option<Instant>,
    pub written: Option<Instant>,
    failures: u32,
    refusals: u32,
    /// The number of looks since the last report that found nothing to report.
    quiet: u32,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            revision: String::new(),
            since: Instant::now(),
            known: KnownDeployment::default(),
            put: None,
            refused: None,
            report_at: None,
            written: None,
            failures: 0,
            refusals: 0,
            quiet: 0,
        }
    }
}

impl Pending {
    /// Puts the report off until a random moment, unless the report is put off already. Returns the
    /// time until then; `None` if the report may be written now.
    pub fn wait_to_report(&mut self, jitter: Duration) -> Option<Duration> {
        let at = *self
            .report_at
            .get_or_insert_with(|| Instant::now() + random(jitter));
        let rest = at.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }

    pub fn reported(&mut self) {
        (self.report_at, self.written) = (None, Some(Instant::now()));
        (self.failures, self.quiet) = (0, 0);
    }

    /// Returns the time until the next look, after a look that found nothing to report.
    pub fn rest(&mut self) -> Duration {
        let rest = REST
            .saturating_mul(1 << self.quiet.min(7))
            .min(LONGEST_REST);
        self.quiet += 1;
        rest
    }

    /// Returns the pause after a request that the API server had no time for. A report waits
    /// equally long. Each failure in a row makes the pause longer.
    pub fn put_off(&mut self) -> Duration {
        self.failures += 1;
        let wait = SHORTEST + random(pause(self.failures));
        if let Some(at) = &mut self.report_at {
            *at = Instant::now() + wait;
        }
        wait
    }

    /// Keeps a refusal, and sets the time of the next attempt. After a fault of the probe the next
    /// attempt comes minutes later. After a full disk it comes sooner.
    pub fn refuse(&mut self, report: NodeReport) {
        self.refusals += 1;
        let again = match report.state {
            NodeState::Refused => Duration::from_mins(5),
            _ => pause(self.refusals),
        };
        self.refused = Some((report, Instant::now() + again));
    }

    /// Begins with another revision, or again after a PUT of the same revision.
    pub fn begin(&mut self, revision: &str) {
        let Self { put, written, .. } = std::mem::take(self);
        (self.put, self.written, self.revision) = (put, written, revision.to_owned());
    }
}

/// Tells whether a report differs enough from the last report.
pub fn is_due(
    new: &NodeReport,
    last: Option<&NodeReport>,
    windows: u32,
    pending: &Pending,
) -> bool {
    let is_settled = new.state != NodeState::Running || new.windows >= windows;
    let Some(last) = last.filter(|last| last.revision == new.revision) else {
        return is_settled || pending.since.elapsed() >= EARLY;
    };
    let has_changed = (last.state, &last.stage) != (new.state, &new.stage)
        || (new.state != NodeState::Running && last.reason != new.reason)
        || last.firing != new.firing;
    let begins_to_lose = |last: u64, new: u64| last == 0 && new > 0;
    let loses = begins_to_lose(last.lost_windows, new.lost_windows)
        || begins_to_lose(last.lost_events, new.lost_events);
    let has_judged = last.windows < windows && new.windows >= windows;
    let costs_otherwise = match (last.ns_per_packet, new.ns_per_packet) {
        (Some(last), Some(new)) => new > last * 2.0 || new < last / 2.0,
        (last, new) => last.is_some() != new.is_some(),
    };
    let is_quiet = pending
        .written
        .is_none_or(|written| written.elapsed() >= COST);
    has_changed || has_judged || loses || (costs_otherwise && is_quiet && is_settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(windows: u32, cost: f64) -> NodeReport {
        let revision = "r".to_owned();
        NodeReport {
            revision,
            state: NodeState::Running,
            windows,
            ns_per_packet: Some(cost),
            ..NodeReport::default()
        }
    }

    #[test]
    fn one_report_says_all_of_a_change() {
        let pending = Pending::default();
        let due = |new: &NodeReport, last: Option<&NodeReport>| is_due(new, last, 2, &pending);
        assert!(!due(&running(0, 5.0), None) && !due(&running(1, 5.0), None));
        assert!(due(&running(2, 5.0), None), "it has closed its windows");
        let last = running(2, 5.0);
        assert!(!due(&running(2, 9.9), Some(&last)) && due(&running(2, 10.1), Some(&last)));
        let other = NodeReport {
            revision: "other".to_owned(),
            ..last.clone()
        };
        assert!(due(&last, Some(&other)) && !due(&running(1, 5.0), Some(&other)));
        let refused = NodeReport {
            state: NodeState::Refused,
            ..running(0, 5.0)
        };
        assert!(
            due(&refused, None) && due(&refused, Some(&last)) && !due(&refused, Some(&refused))
        );
        assert!(due(
            &NodeReport {
                lost_events: 1,
                ..last.clone()
            },
            Some(&last)
        ));
        assert!(due(&last, Some(&running(0, 5.0))));
    }

    #[test]
    fn a_refusal_and_its_report_stand_until_the_revision_changes() {
        let mut pending = Pending::default();
        pending.begin("second");
        pending.put = Some(("first".to_owned(), None));
        pending.refuse(NodeReport {
            state: NodeState::Refused,
            ..running(0, 5.0)
        });
        assert!(
            pending
                .refused
                .as_ref()
                .is_some_and(|(_, again)| *again > Instant::now())
        );
        assert!(
            pending.wait_to_report(Duration::from_hours(1)).is_some()
                && pending.report_at.is_some()
        );
        // Failures put the report off as well, and each further failure puts it off for longer.
        let waits: Vec<Duration> = (0..50).map(|_| pending.put_off()).collect();
        assert!(
            waits.iter().all(|wait| *wait < SHORTEST + pause(u32::MAX)),
            "{waits:?}"
        );
        assert!(waits.iter().max() > Some(&pause(1)), "{waits:?}");
        let before = Instant::now();
        let wait = pending.put_off();
        assert!(
            pending.report_at >= Some(before + wait),
            "the report waits as long"
        );
        pending.begin("third");
        assert!(pending.refused.is_none() && pending.report_at.is_none() && pending.put.is_some());
    }

    #[test]
    fn the_looks_at_a_quiet_probe_become_rare() {
        let mut pending = Pending::default();
        let rests: Vec<u64> = (0..4).map(|_| pending.rest().as_secs()).collect();
        assert_eq!(rests, [10, 20, 40, 40]);
        pending.reported();
        assert_eq!(pending.rest(), REST);
    }

    #[test]
    fn another_cost_waits_for_a_minute() {
        let mut pending = Pending::default();
        pending.reported();
        assert!(!is_due(
            &running(2, 50.0),
            Some(&running(2, 5.0)),
            2,
            &pending
        ));
        let failed = NodeReport {
            state: NodeState::Failed,
            ..running(2, 5.0)
        };
        assert!(
            is_due(&failed, Some(&running(2, 5.0)), 2, &pending),
            "a failure does not wait"
        );
    }
}
