//! Rules that would keep each other busy: one watches what another one makes.

use std::collections::{BTreeMap, BTreeSet};

use twinprobe_api::{RuleAction, RuleDocument};

/// Returns the names of the probes that a rule deploys. A name with values from a window stays as the rule has it: the
/// values are not known before.
pub fn made(document: &RuleDocument) -> impl Iterator<Item = &str> {
    document.actions.iter().filter_map(|action| match action {
        RuleAction::Apply(probe) => Some(probe.name.as_str()),
        RuleAction::Change(_) | RuleAction::Notify(_) | RuleAction::Delete(_) | RuleAction::Mark(_) => None,
    })
}

/// Returns the names of the probes that a rule changes.
pub fn changed(document: &RuleDocument) -> impl Iterator<Item = &str> {
    document.actions.iter().filter_map(|action| match action {
        RuleAction::Change(change) => Some(change.name.as_str()),
        RuleAction::Apply(_) | RuleAction::Notify(_) | RuleAction::Delete(_) | RuleAction::Mark(_) => None,
    })
}

/// Returns the probes whose windows change with a firing. A change of the watched probe does not count: the rule's own
/// conditions and its cooldown bound how often it happens.
fn touched(document: &RuleDocument) -> impl Iterator<Item = &str> {
    made(document).chain(changed(document).filter(|name| *name != document.watch))
}

/// Returns the probes on a path from the probes that `document` makes back to the one that it watches; `None` without a path.
pub fn cycle<'a>(
    document: &'a RuleDocument,
    others: impl IntoIterator<Item = &'a RuleDocument>,
) -> Option<Vec<String>> {
    let mut makes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for rule in others.into_iter().chain([document]) {
        makes.entry(rule.watch.as_str()).or_default().extend(touched(rule));
    }
    let mut seen = BTreeSet::new();
    let mut ways: Vec<Vec<&str>> =
        touched(document).map(|probe| vec![document.watch.as_str(), probe]).collect();
    while let Some(way) = ways.pop() {
        let Some(last) = way.last().copied() else { continue };
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
        serde_json::from_value(serde_json::json!({ "watch": watch, "when": "true", "do": actions })).unwrap()
    }

    #[test]
    fn a_way_back_is_found_over_other_rules() {
        let (first, second, third) = (rule("a", &["b", "x"]), rule("b", &["c"]), rule("c", &["a"]));
        assert_eq!(cycle(&third, [&first]), None);
        let found = cycle(&third, [&first, &second]).unwrap();
        assert_eq!(found, ["c", "a", "b", "c"]);
        assert_eq!(cycle(&rule("a", &["a"]), []).unwrap(), ["a", "a"]);
        // The new rule is not part of this circle.
        assert_eq!(cycle(&rule("y", &["a"]), [&first, &second, &third]), None);
    }
}
