//! A node's report, made from its daemon's answers.

use twinprobe_api::{NodeReport, NodeState, ProbeStatus, Problem, RuleStatus};

/// The longest reason in a report: an object with a longer one could exceed 1 KB.
const LONGEST: usize = 300;

/// A node's observations about a probe, without its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The windows that the probe has closed with the present configuration.
    pub windows: u32,
    pub failed_inserts: u64,
    pub lost_windows: u64,
}

/// Returns the report of a probe that the daemon has.
pub fn report(node: &str, revision: &str, status: &ProbeStatus, observed: Observed) -> NodeReport {
    let cost = status.cost.as_ref();
    let live = cost
        .into_iter()
        .flat_map(|cost| &cost.live)
        .max_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
    let tried = cost
        .into_iter()
        .flat_map(|cost| cost.tried.directions.values());
    let tried = tried
        .filter_map(|cost| Some(cost.run.as_ref()?.ns_per_packet))
        .max();
    let lost: u64 = status.events.iter().filter_map(|events| events.lost).sum();
    let is_attached = status.interfaces.iter().any(|at| at.state == "attached");
    let state = match (&*status.state, is_attached) {
        ("running", true) => NodeState::Running,
        ("running", false) => NodeState::Excluded,
        _ => NodeState::Failed,
    };
    let waiting = || status.interfaces.iter().find_map(|at| at.reason.clone());
    let reason = match state {
        NodeState::Excluded => {
            Some(waiting().unwrap_or_else(|| "it has no interface for the probe".to_owned()))
        }
        _ => status.reason.clone(),
    };
    NodeReport {
        probe: status.name.clone(),
        node: node.to_owned(),
        revision: revision.to_owned(),
        state,
        stage: (state == NodeState::Failed).then(|| "attach".to_owned()),
        reason: reason.map(|reason| cut(&reason)),
        kernel: None,
        windows: observed.windows,
        // A trial's cost is far below 2^53.
        ns_per_packet: live
            .map(|live| live.ns_per_packet)
            .or(tried.map(|cost| cost as f64)),
        at: live.map(|live| format!("{} {}", live.interface, live.direction.name())),
        failed_inserts: observed.failed_inserts,
        lost_windows: observed.lost_windows,
        lost_events: lost,
        firing: false,
    }
}

/// Returns the report of a probe that the daemon has refused, with the stage and the line that says
/// why.
pub fn refused(probe: &str, node: &str, revision: &str, problem: &Problem) -> NodeReport {
    let stage = problem
        .errors
        .first()
        .and_then(|finding| serde_json::to_value(finding.stage).ok());
    let stage = stage.and_then(|stage| stage.as_str().map(str::to_owned));
    // Other refusals say nothing of the probe: a missing role, a full disk.
    let state = if matches!(problem.status, 400 | 413 | 422) {
        NodeState::Refused
    } else {
        NodeState::Failed
    };
    NodeReport {
        probe: probe.to_owned(),
        node: node.to_owned(),
        revision: revision.to_owned(),
        state,
        stage: Some(stage.unwrap_or_else(|| "daemon".to_owned())),
        reason: Some(cut(&words(problem))),
        ..NodeReport::default()
    }
}

/// Returns the report of a rule that the daemon has. `assignment` is the name of the rule's
/// assignment.
pub fn rule_report(
    assignment: &str,
    node: &str,
    revision: &str,
    status: &RuleStatus,
) -> NodeReport {
    // A rule that has stopped itself stays stopped until its object changes.
    let is_stopped = &*status.state == "stopped";
    NodeReport {
        probe: assignment.to_owned(),
        node: node.to_owned(),
        revision: revision.to_owned(),
        state: if is_stopped {
            NodeState::Failed
        } else {
            NodeState::Running
        },
        stage: is_stopped.then(|| "rule".to_owned()),
        reason: status.reason.clone().or_else(|| status.last_error.clone()),
        firing: &*status.state == "firing",
        ..NodeReport::default()
    }
}

/// Tells whether a daemon has decided about a configuration. A daemon that is starting, or has too
/// much to do, has not decided yet. A daemon without a compiler names the stage.
pub fn is_decided(problem: &Problem) -> bool {
    !matches!(problem.status, 429 | 503) || problem.status == 503 && !problem.errors.is_empty()
}

/// Returns the most telling line of a refusal: the first mistake, or the verifier's last word
/// before its statistics.
fn words(problem: &Problem) -> String {
    let first = problem
        .errors
        .first()
        .map(|finding| twinprobe_api::finding_line(finding, "error"));
    let said = first.unwrap_or_else(|| problem.detail.clone());
    let is_loading = problem
        .errors
        .first()
        .is_some_and(|finding| finding.stage == twinprobe_ebpf_common::finding::Stage::Load);
    let verifier = problem
        .log
        .as_deref()
        .filter(|_| is_loading)
        .and_then(verifiers_line);
    match verifier {
        Some(line) if !said.contains(line) => format!("{line} ({said})"),
        _ => said,
    }
}

/// Returns the verifier's own last line, without its statistics.
fn verifiers_line(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 4] = [
        "processed ",
        "verification time",
        "stack depth",
        "peak_states",
    ];
    let mut lines = log
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    lines.find(|line| !STATISTICS.iter().any(|begin| line.starts_with(begin)))
}

fn cut(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(state: &str, attached: bool) -> ProbeStatus {
        let at = json!({ "interface": "eth0", "state": if attached { "attached" } else { "pending" }, "direction": "ingress",
            "reason": if attached { None } else { Some("there is no eth0") } });
        let live = |interface: &str, ns: f64| {
            json!({ "interface": interface, "direction": "ingress", "hook": "xdp", "ns_per_packet": ns, "by": "samples",
                "dispatcher_ns_per_packet": 90.0, "packets": 5, "measured": "2026-11-21T10:00:00Z" })
        };
        let windows = json!({ "retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0, "damaged": 0 });
        serde_json::from_value(json!({
            "name": "flows", "state": state, "interfaces": [at], "created": "2026-11-21T10:00:00Z", "revision": 1,
            "programs": {}, "windows": windows, "warnings": [], "config": {},
            "events": [{ "direction": "ingress", "metric": "e", "delivered": 0, "lost": 7, "missed": 0, "clients": 0 }],
            "cost": { "directions": {}, "map_bytes": 0, "live": [live("eth0", 41.5), live("eth1", 80.25)] },
        }))
        .unwrap()
    }

    #[test]
    fn a_report_has_the_worst_cost_and_its_place() {
        let observed = Observed {
            windows: 2,
            failed_inserts: 3,
            lost_windows: 1,
        };
        let report = report("n1", "flows-1", &status("running", true), observed);
        assert_eq!(
            (report.state, report.windows, report.lost_events),
            (NodeState::Running, 2, 7)
        );
        assert_eq!(
            (report.ns_per_packet, report.at.as_deref()),
            (Some(80.25), Some("eth1 ingress"))
        );
    }

    #[test]
    fn a_node_without_the_interface_is_told_from_one_that_failed() {
        let excluded = report(
            "n1",
            "flows-1",
            &status("running", false),
            Observed::default(),
        );
        assert_eq!(
            (excluded.state, excluded.reason.as_deref()),
            (NodeState::Excluded, Some("there is no eth0"))
        );
        assert_eq!(
            report(
                "n1",
                "flows-1",
                &status("failed", false),
                Observed::default()
            )
            .state,
            NodeState::Failed
        );
    }

    #[test]
    fn a_refusal_has_its_stage_and_the_verifiers_line() {
        let problem = json!({ "status": 422, "title": "Invalid probe", "detail": "the kernel refused it",
            "errors": [{ "stage": "load", "field": "ingress.source", "line": 7, "message": "the verifier refused the program" }],
            "log": "0: (61) r1 = *(u32 *)(r1 +0)\ninvalid access to packet, off=0 size=4\nprocessed 12 insns\n" });
        let report = refused(
            "flows",
            "n1",
            "flows-1",
            &serde_json::from_value(problem).unwrap(),
        );
        assert_eq!(
            (report.state, report.stage.as_deref()),
            (NodeState::Refused, Some("load"))
        );
        assert_eq!(
            report.reason.as_deref(),
            Some(
                "invalid access to packet, off=0 size=4 (ingress.source:7: error: the verifier refused the program)"
            )
        );
        let broken = Problem {
            status: 503,
            detail: "the disk is full".to_owned(),
            ..Problem::default()
        };
        assert_eq!(
            refused("flows", "n1", "flows-1", &broken).state,
            NodeState::Failed
        );
    }

    #[test]
    fn a_daemon_without_a_compiler_has_decided_and_a_busy_one_has_not() {
        let errors = json!([{ "stage": "compile", "message": "no clang" }]);
        for (status, errors, expected) in [
            (422, json!([]), true),
            (503, errors.clone(), true),
            (503, json!([]), false),
            (429, errors, false),
        ] {
            let problem = json!({ "status": status, "title": "", "detail": "", "errors": errors });
            assert_eq!(
                is_decided(&serde_json::from_value(problem).unwrap()),
                expected,
                "{status} {errors}"
            );
        }
    }

    #[test]
    fn reasons_are_cut_between_letters() {
        assert_eq!(cut(&"ä".repeat(400)).chars().count(), LONGEST + 1);
    }
}
