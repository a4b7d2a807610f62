//! The check of a rule before it runs. It includes the other rules, because rules must not trigger
//! each other without end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinprobe_access::Principal;
use twinprobe_api::{ConfigDocument, RuleAction, RuleDocument, RuleProbe};
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_rules::{FLEET, Rule, Templates};

use crate::engine::engine::{Engine, permitted};
use crate::engine::error::EngineError;
use crate::engine::probe::probe::Probe;
use crate::rules::changes::chosen;
use crate::rules::probes::{self, below, check_probe, whole};

/// The largest number of rules.
const MOST_RULES: usize = 64;

/// The proof that the expressions of a rule fit the windows of its probe.
pub struct CheckedExpressions {
    templates: Templates,
    /// The probes that the rule deploys, with the configurations of their templates, and the fields
    /// of their actions.
    probes: Vec<(String, RuleProbe)>,
}

/// Checks the expressions of a rule and of its templates. That takes a while, so the caller holds
/// no lock.
pub async fn check_expressions(
    engine: &Arc<Engine>,
    document: &RuleDocument,
) -> Result<CheckedExpressions, EngineError> {
    let shape = engine.in_turn(&document.watch, Probe::shape).await?;
    let (engine, document) = (Arc::clone(engine), document.clone());
    let work = move || {
        let rule = Rule::new(document, shape.clone())?;
        let templates = probes::templates(&engine, rule.document())?;
        let mut probes = Vec::new();
        for (index, action) in rule.document().actions.iter().enumerate() {
            let RuleAction::Apply(wanted) = action else {
                continue;
            };
            let field = format!("do[{index}].apply");
            let wanted =
                whole(wanted, &templates, &shape).map_err(|rejection| below(&field, rejection))?;
            probes.push((field, wanted.into_owned()));
        }
        Ok(CheckedExpressions { templates, probes })
    };
    tokio::task::spawn_blocking(work).await?
}

/// Refuses a rule that can't be judged, whose probes would be refused, or that would trigger itself
/// without end. `others` are all other rules.
pub async fn check(
    engine: &Arc<Engine>,
    (name, document): (&str, &RuleDocument),
    others: &[(String, RuleDocument)],
    checked: Result<CheckedExpressions, EngineError>,
    watched: &ConfigDocument,
    by: &Principal,
) -> Result<(), EngineError> {
    if document.scope.as_deref() == Some(FLEET) {
        let message = "a daemon judges the windows of its own node; `twinprobe stream --rules` judges those of a fleet";
        return Err(Rejection::from(Finding::config("scope", message)).into());
    }
    let checked = checked?;
    let (of, named) = (Arc::clone(engine), document.clone());
    let templates = tokio::task::spawn_blocking(move || probes::templates(&of, &named)).await??;
    if templates != checked.templates {
        let message = "a template of the rule has changed meanwhile; put the rule again";
        return Err(EngineError::Conflict(message.to_owned()));
    }
    if others.len() >= MOST_RULES {
        return Err(EngineError::Conflict(format!(
            "there are {MOST_RULES} rules, which is the limit"
        )));
    }
    if let Some(way) = cycle(document, others.iter().map(|(_, other)| other)) {
        let message = format!(
            "the rule would watch its own probes: the windows of {} lead to those of {}",
            way[0],
            way[1..].join(", then of ")
        );
        return Err(Rejection::from(Finding::config("watch", message)).into());
    }
    check_changes(engine, document, others, by)?;
    for (field, wanted) in &checked.probes {
        check_name(engine, name, &format!("{field}.name"), &wanted.name, others)?;
        check_probe(field, wanted, watched, by)?;
    }
    Ok(())
}

/// Refuses a probe with a name that another client or another rule uses.
fn check_name(
    engine: &Engine,
    rule: &str,
    field: &str,
    probe: &str,
    others: &[(String, RuleDocument)],
) -> Result<(), EngineError> {
    let refused =
        |message: String| EngineError::from(Rejection::from(Finding::config(field, message)));
    let takes = |other: &RuleDocument| made(other).chain(changed(other)).any(|name| name == probe);
    if let Some((other, _)) = others.iter().find(|(_, other)| takes(other)) {
        let message =
            format!("rule {other} deploys or changes a probe of this name; choose another name");
        return Err(refused(message));
    }
    let owner = format!("rule:{rule}");
    let present = engine.registry.get(probe).ok();
    if present.is_some_and(|present| present.stored.pushed_by.as_ref() != Some(&owner)) {
        let message =
            "there is a probe of this name that this rule has not made; choose another name";
        return Err(refused(message.to_owned()));
    }
    Ok(())
}

/// Refuses changes of probes that do not exist, that the rule's author may not change, or that
/// another rule deploys or changes.
fn check_changes(
    engine: &Engine,
    document: &RuleDocument,
    others: &[(String, RuleDocument)],
    by: &Principal,
) -> Result<(), EngineError> {
    for (index, action) in document.actions.iter().enumerate() {
        let RuleAction::Change(change) = action else {
            continue;
        };
        let field = format!("do[{index}].change");
        let refused = |message: String| {
            EngineError::from(Rejection::from(Finding::config(
                format!("{field}.name"),
                message,
            )))
        };
        let name = change.name.as_str();
        let busy = |other: &RuleDocument| {
            made(other)
                .chain(changed(other))
                .any(|touched| touched == name)
        };
        if let Some((other, _)) = others.iter().find(|(_, other)| busy(other)) {
            return Err(refused(format!(
                "rule {other} deploys or changes this probe; one rule can do so"
            )));
        }
        let probe = engine.registry.get(name);
        let probe = probe
            .map_err(|_| refused(format!("there is no probe named {name}; deploy it first")))?;
        // The values from windows are not known yet.
        if serde_json::to_string(change).is_ok_and(|text| text.contains("{{")) {
            continue;
        }
        let config =
            chosen(&probe.stored.config, change).map_err(|rejection| below(&field, rejection))?;
        permitted(name, &config, by).map_err(|error| match error {
            EngineError::Rejected(rejection) => EngineError::Rejected(below(&field, rejection)),
            error => error,
        })?;
    }
    Ok(())
}

/// Returns the names of the probes that a rule deploys. A name that contains values from a window
/// is not evaluated, because the values are not known yet.
fn made(document: &RuleDocument) -> impl Iterator<Item = &str> {
    document.actions.iter().filter_map(|action| match action {
        RuleAction::Apply(probe) => Some(probe.name.as_str()),
        RuleAction::Change(_)
        | RuleAction::Notify(_)
        | RuleAction::Delete(_)
        | RuleAction::Mark(_) => None,
    })
}

/// Returns the names of the probes that a rule changes.
fn changed(document: &RuleDocument) -> impl Iterator<Item = &str> {
    document.actions.iter().filter_map(|action| match action {
        RuleAction::Change(change) => Some(change.name.as_str()),
        RuleAction::Apply(_)
        | RuleAction::Notify(_)
        | RuleAction::Delete(_)
        | RuleAction::Mark(_) => None,
    })
}

/// Returns the probes whose windows a firing affects. A change of the watched probe does not count,
/// because the rule's own conditions and its cooldown limit the number of such changes.
fn touched(document: &RuleDocument) -> impl Iterator<Item = &str> {
    made(document).chain(changed(document).filter(|name| *name != document.watch))
}

/// Returns the probes on a path from the probes that `document` makes to the probe that it watches;
/// `None` if there is no such path.
fn cycle<'a>(
    document: &'a RuleDocument,
    others: impl IntoIterator<Item = &'a RuleDocument>,
) -> Option<Vec<String>> {
    let mut makes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for rule in others.into_iter().chain([document]) {
        makes
            .entry(rule.watch.as_str())
            .or_default()
            .extend(touched(rule));
    }
    let mut seen = BTreeSet::new();
    let mut ways: Vec<Vec<&str>> = touched(document)
        .map(|probe| vec![document.watch.as_str(), probe])
        .collect();
    while let Some(way) = ways.pop() {
        let Some(last) = way.last().copied() else {
            continue;
        };
        if last == document.watch {
            return Some(way.into_iter().map(str::to_owned).collect());
        }
        if seen.insert(last) {
            let next = makes.get(last).into_iter().flatten();
            ways.extend(next.map(|probe| way.iter().copied().chain([*probe]).collect()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(watch: &str, makes: &[&str]) -> RuleDocument {
        let actions: Vec<_> = makes
            .iter()
            .map(|name| serde_json::json!({ "apply": { "name": name, "probe": "dns", "expires": "1m" } }))
            .collect();
        serde_json::from_value(serde_json::json!({ "watch": watch, "when": "true", "do": actions }))
            .unwrap()
    }

    #[test]
    fn a_way_back_is_found_over_other_rules() {
        let (first, second, third) = (rule("a", &["b", "x"]), rule("b", &["c"]), rule("c", &["a"]));
        assert_eq!(cycle(&third, [&first]), None);
        let found = cycle(&third, [&first, &second]).unwrap();
        assert_eq!(found, ["c", "a", "b", "c"]);
        assert_eq!(cycle(&rule("a", &["a"]), []).unwrap(), ["a", "a"]);
        // The new rule is not a part of this cycle.
        assert_eq!(cycle(&rule("y", &["a"]), [&first, &second, &third]), None);
    }
}
