//! The outcome of sending a configuration to a daemon.

use serde_json::{Map, Value, json};
use twinprobe_api::ProbeStatus;
use twinprobe_client::{Answer, ClientError};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::Finding;

use crate::error::CommandError;
use crate::files::sources::Sources;
use crate::output::table::TextTable;
use crate::output::units;

/// The change that a daemon has made.
#[derive(Clone, Debug)]
pub struct Done {
    /// `created`, `replaced`, `valid`, ...
    pub verb: &'static str,
    /// The place where the probe runs now, such as `ux0 (xdp native)`; empty if it is not known.
    pub places: String,
    pub warnings: Vec<Finding>,
    /// The nanoseconds that a trial took for a packet, the slower direction.
    pub ns_per_packet: Option<u64>,
    /// The whole answer, for programs; null if there is none.
    pub answer: Value,
}

/// The outcome of one change at one daemon.
#[derive(Debug)]
pub struct DeployOutcome {
    pub node: String,
    /// The name of the probe or rule.
    pub name: String,
    pub result: Result<Done, ClientError>,
}

impl Done {
    /// Returns the outcome as a line, without the daemon.
    pub fn line(&self, probe: &str) -> String {
        let places = if self.places.is_empty() {
            String::new()
        } else {
            format!(" on {}", self.places)
        };
        let cost = match self.ns_per_packet {
            Some(nanoseconds) if self.verb == "valid" => {
                format!(", trial cost {nanoseconds} ns per packet")
            }
            _ => String::new(),
        };
        format!("{} {probe}{places}{cost}", self.verb)
    }
}

impl DeployOutcome {
    pub fn value(&self, is_one: bool, sources: &Sources) -> Value {
        let mut fields = Map::new();
        if !is_one {
            fields.insert("server".to_owned(), self.node.clone().into());
        }
        fields.insert("name".to_owned(), self.name.clone().into());
        match &self.result {
            Ok(done) => {
                fields.insert("outcome".to_owned(), done.verb.into());
                if !done.answer.is_null() {
                    fields.insert("answer".to_owned(), done.answer.clone());
                }
            }
            Err(ClientError::Refused(problem)) => {
                fields.insert("outcome".to_owned(), "refused".into());
                let mut problem = json!(problem);
                let findings = problem["errors"].as_array_mut().into_iter().flatten();
                for finding in findings {
                    let parsed: Option<Finding> = serde_json::from_value(finding.clone()).ok();
                    let file = parsed.and_then(|parsed| sources.of(&parsed)?.file.clone());
                    if let Some(file) = file {
                        finding["file"] = file.into();
                    }
                }
                fields.insert("problem".to_owned(), problem);
            }
            Err(error) => {
                fields.insert("outcome".to_owned(), "failed".into());
                let error = twinprobe_ebpf_common::finding::with_causes(error);
                fields.insert("error".to_owned(), error.into());
            }
        }
        Value::Object(fields)
    }
}

/// Makes a table with a row for each daemon and each probe or rule; `title` says which.
pub fn table(title: &'static str, outcomes: &[DeployOutcome]) -> TextTable {
    let mut table = TextTable::default();
    for outcome in outcomes {
        let mut row = table.row();
        row.text("NODE", &outcome.node);
        row.text(title, &outcome.name);
        match &outcome.result {
            Ok(done) => {
                row.text("OUTCOME", done.verb);
                if !done.places.is_empty() {
                    row.text("ON", &done.places);
                }
                if let Some(nanoseconds) = done.ns_per_packet {
                    row.amount(
                        "TRIAL COST",
                        nanoseconds as f64,
                        units::nanoseconds(nanoseconds as f64),
                    );
                }
            }
            Err(ClientError::Refused(problem)) => {
                row.text("OUTCOME", "refused");
                row.text(
                    "REASON",
                    if problem.detail.is_empty() {
                        &problem.title
                    } else {
                        &problem.detail
                    },
                );
            }
            Err(error) => {
                row.text("OUTCOME", "failed");
                row.text("REASON", &error.to_string());
            }
        }
    }
    table
}

/// Says where a probe is attached: `ux0 (xdp native, tc tcx), ux1 (pending: there is no interface
/// ux1)`.
pub fn places(status: &ProbeStatus) -> String {
    let mut places: Vec<(&str, Vec<String>)> = Vec::new();
    for at in &status.interfaces {
        let word =
            |word: &Option<twinprobe_api::Word>| word.as_deref().unwrap_or_default().to_owned();
        let mut what = match (&*at.state, &at.reason) {
            ("attached", _) => format!("{} {}", word(&at.hook), word(&at.mode))
                .trim()
                .to_owned(),
            (state, Some(reason)) => format!("{state}: {reason}"),
            (state, None) => state.to_owned(),
        };
        // TC has the same words for both directions.
        if at.direction == Some(Direction::Egress) {
            what.push_str(" egress");
        }
        match places.iter_mut().find(|(name, _)| *name == at.interface) {
            Some((_, hooks)) if hooks.contains(&what) => {}
            Some((_, hooks)) => hooks.push(what),
            None => places.push((&at.interface, vec![what])),
        }
    }
    let place = |(name, hooks): &(&str, Vec<String>)| format!("{name} ({})", hooks.join(", "));
    places.iter().map(place).collect::<Vec<_>>().join(", ")
}

/// Returns an answer for programs, without the sources that they have sent.
pub fn content<T>(answer: &Answer<T>) -> Value {
    let mut content = answer.json().unwrap_or_default();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("config");
    }
    content
}

/// Returns the error of a run with some failures.
pub fn failure(outcomes: &[DeployOutcome], nodes: usize) -> Result<(), CommandError> {
    let failed: Vec<&DeployOutcome> = outcomes
        .iter()
        .filter(|outcome| outcome.result.is_err())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    if nodes == 1 {
        return Err(CommandError::Several {
            failed: failed.len(),
            total: outcomes.len(),
        });
    }
    let mut names: Vec<&str> = failed.iter().map(|outcome| outcome.node.as_str()).collect();
    names.dedup();
    Err(CommandError::Nodes {
        failed: names.len(),
        total: nodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_with_their_hooks() {
        let at = |interface: &str, state: &str, direction: &str, hook: &str, mode: &str| json!({ "interface": interface, "state": state, "direction": direction, "hook": hook, "mode": mode });
        let status = json!({ "name": "dns", "state": "running", "revision": 1, "created": "", "programs": {}, "warnings": [],
            "windows": { "retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0, "damaged": 0 }, "config": {},
            "interfaces": [at("ux0", "attached", "ingress", "xdp", "native"), at("ux0", "attached", "egress", "tc", "tcx"),
                { "interface": "ux1", "state": "pending", "reason": "there is none" }] });
        let status: ProbeStatus = serde_json::from_value(status).unwrap();
        assert_eq!(
            places(&status),
            "ux0 (xdp native, tc tcx egress), ux1 (pending: there is none)"
        );
        let done = Done {
            verb: "created",
            places: "ux0 (xdp native)".to_owned(),
            warnings: vec![],
            ns_per_packet: Some(7),
            answer: Value::Null,
        };
        assert_eq!(done.line("dns"), "created dns on ux0 (xdp native)");
        assert_eq!(
            Done {
                verb: "valid",
                ..done
            }
            .line("dns"),
            "valid dns on ux0 (xdp native), trial cost 7 ns per packet"
        );
    }
}
