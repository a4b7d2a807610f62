//! The conditions of an object in Kubernetes' words. Commands outside Kubernetes use the same
//! conditions.

use jiff::Timestamp;
use twinprobe_api::{FleetCondition, FleetCounts};

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// The object can't be rolled out, for this reason.
    Invalid(&'a str),
    /// The rollout is in the step of this name.
    Step(&'a str),
    /// People have stopped the rollout in the step of this name.
    Paused(&'a str),
    /// A failure has stopped the rollout, for this reason.
    Stopped(&'a str),
    /// Nodes have taken their earlier revision back, for this reason.
    RolledBack(&'a str),
    Complete,
    /// A rule over the fleet has no window yet, for this reason.
    Waiting(&'a str),
    /// The operator judges the windows of the nodes together.
    Judging,
}

/// Returns the conditions of an object. A condition with an unchanged status keeps its time.
pub fn conditions(
    standing: Standing<'_>,
    counts: FleetCounts,
    before: &[FleetCondition],
    now: Timestamp,
) -> Vec<FleetCondition> {
    let (accepted, validity) = match standing {
        Standing::Invalid(reason) => (false, reason),
        Standing::Waiting(_) | Standing::Judging => (true, "it can be judged"),
        _ => (true, "it can be rolled out"),
    };
    let (is_moving, reason, message) = progress(standing);
    let FleetCounts {
        selected,
        running,
        failed,
        excluded,
        silent,
        ..
    } = counts;
    let is_available = running > 0 && running + excluded >= selected;
    let available = format!(
        "it runs on {running} of {} nodes",
        selected.saturating_sub(excluded)
    );
    let is_degraded =
        failed > 0 || matches!(standing, Standing::Stopped(_) | Standing::RolledBack(_));
    let degraded = format!("failed on {failed} nodes, {silent} have not answered");
    let words = |word: bool, yes: &'static str, no: &'static str| if word { yes } else { no };
    let all = [
        (
            "Accepted",
            accepted,
            words(accepted, "Valid", "Invalid"),
            validity.to_owned(),
        ),
        ("Progressing", is_moving, reason, message),
        (
            "Available",
            is_available,
            words(is_available, "Running", "NotOnEveryNode"),
            available,
        ),
        (
            "Degraded",
            is_degraded,
            words(is_degraded, "Failures", "NoFailures"),
            degraded,
        ),
    ];
    all.map(|(kind, is, reason, message)| condition((kind, is, reason), message, before, now))
        .to_vec()
}

/// Tells whether the rollout moves on, with the word and the text for people.
fn progress(standing: Standing<'_>) -> (bool, &'static str, String) {
    match standing {
        Standing::Invalid(_) => (false, "Invalid", "nothing is rolled out".to_owned()),
        Standing::Step(step) => (true, "RollingOut", format!("the step is {step}")),
        Standing::Paused(step) => (
            false,
            "Paused",
            format!("somebody has stopped it at the step {step}"),
        ),
        Standing::Stopped(reason) => (false, "Stopped", reason.to_owned()),
        Standing::RolledBack(reason) => (false, "RolledBack", reason.to_owned()),
        Standing::Complete => (false, "Complete", "every node has the revision".to_owned()),
        Standing::Waiting(reason) => (true, "Waiting", reason.to_owned()),
        Standing::Judging => (
            false,
            "Judging",
            "the operator judges the windows of the nodes together".to_owned(),
        ),
    }
}

/// Returns the condition about compilation. It names the compiler that has compiled the programs
/// for all nodes, or says why each node compiles them.
pub fn compiled_condition(
    by: Result<String, String>,
    before: &[FleetCondition],
    now: Timestamp,
) -> FleetCondition {
    let (is, reason, message) = match by {
        Ok(by) => (true, "Once", by),
        Err(why) => (
            false,
            "OnNodes",
            format!("each node compiles the sources: {why}"),
        ),
    };
    condition(("Compiled", is, reason), message, before, now)
}

/// Returns a condition. An unchanged status keeps its time.
fn condition(
    (kind, is, reason): (&str, bool, &str),
    message: String,
    before: &[FleetCondition],
    now: Timestamp,
) -> FleetCondition {
    let status = if is { "True" } else { "False" };
    let was = before
        .iter()
        .find(|condition| condition.kind == kind && condition.status == status);
    let since = was.and_then(|was| was.last_transition_time.clone());
    FleetCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Some(since.unwrap_or_else(|| seconds(now))),
    }
}

/// Returns a time to the second, as Kubernetes writes it.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(standing: Standing<'_>, counts: FleetCounts) -> Vec<String> {
        let conditions = conditions(standing, counts, &[], Timestamp::UNIX_EPOCH);
        conditions
            .iter()
            .map(|it| format!("{}={} {}", it.kind, it.status, it.reason))
            .collect()
    }

    #[test]
    fn an_object_is_available_only_when_it_runs_somewhere_and_everywhere() {
        let none = FleetCounts {
            selected: 3,
            ..FleetCounts::default()
        };
        let all = FleetCounts {
            selected: 3,
            updated: 3,
            running: 2,
            excluded: 1,
            ..FleetCounts::default()
        };
        assert!(
            said(Standing::Complete, none).contains(&"Available=False NotOnEveryNode".to_owned())
        );
        assert!(said(Standing::Complete, all).contains(&"Available=True Running".to_owned()));
        let nowhere = FleetCounts {
            selected: 3,
            excluded: 3,
            ..FleetCounts::default()
        };
        assert!(
            said(Standing::Complete, nowhere)
                .contains(&"Available=False NotOnEveryNode".to_owned())
        );
        // The last step waits for windows from nodes on which the revision runs.
        assert!(said(Standing::Step("100%"), all).contains(&"Available=True Running".to_owned()));
        assert!(
            said(Standing::Step("100%"), none)
                .contains(&"Available=False NotOnEveryNode".to_owned())
        );
        assert!(
            said(Standing::RolledBack("a reason"), all)
                .contains(&"Degraded=True Failures".to_owned())
        );
        assert!(
            said(Standing::Invalid("a reason"), none)
                .contains(&"Accepted=False Invalid".to_owned())
        );
        assert!(
            said(Standing::Step("10%"), none).contains(&"Progressing=True RollingOut".to_owned())
        );
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_change() {
        let (counts, at) = (FleetCounts::default(), |second| {
            Timestamp::from_second(second).unwrap()
        });
        let first = conditions(Standing::Step("1%"), counts, &[], at(5));
        let second = conditions(Standing::Step("10%"), counts, &first, at(6));
        let third = conditions(Standing::Complete, counts, &second, at(7));
        let time = |of: &[FleetCondition]| of[1].last_transition_time.clone().unwrap();
        assert_eq!(
            (time(&second), time(&third)),
            (time(&first), "1970-01-01T00:00:07Z".to_owned())
        );
    }
}
