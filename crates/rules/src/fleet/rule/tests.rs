use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    FleetEvent, FleetRule, NodeWindow, PeriodDecision, period_of, reason, reason_back, state_before,
};
use crate::shapes::shape;
use crate::state::{Decision, RuleState};

const LENGTH: Duration = Duration::from_secs(10);

fn window(packets: u64) -> Value {
    json!({ "window": { "seq": 1, "duration_ns": 10_000_000_000_u64 },
        "ingress": { "packets": { "entries": [{ "key": "a", "value": packets }] } } })
}

fn rule(on: &Value, state: RuleState) -> FleetRule {
    let document = json!({ "watch": "p", "scope": "fleet", "on": on, "for": 1, "cooldown": "0s",
        "when": "sum(ingress.packets) > 10", "do": [{ "mark": "{{sum(ingress.packets)}}" }] });
    let document = serde_json::from_value(document).unwrap();
    FleetRule::new(document, shape(&window(1)), LENGTH, state).unwrap()
}

fn step(rule: &mut FleetRule, period: u64, packets: [u64; 3]) -> PeriodDecision {
    let labels = [("a", "1"), ("b", "1"), ("c", "2")]
        .map(|(node, rack)| (node, BTreeMap::from([("rack".to_owned(), rack.to_owned())])));
    let documents = packets.map(window);
    let windows: Vec<_> = labels
        .iter()
        .zip(&documents)
        .map(|((node, labels), document)| NodeWindow {
            node,
            document,
            labels,
        })
        .collect();
    rule.step(period, &windows)
}

fn nodes(found: &PeriodDecision) -> Vec<&str> {
    found.nodes.iter().map(String::as_str).collect()
}

#[test]
fn windows_of_one_period_count_together() {
    for (on, packets, chosen) in [
        (json!("where"), [1, 20, 3], vec!["b"]),
        // The condition holds only for all nodes together.
        (json!("where"), [5, 5, 5], vec!["a", "b", "c"]),
        (json!("all"), [1, 20, 3], vec!["a", "b", "c"]),
        (json!({ "rack": "1" }), [1, 20, 3], vec!["a", "b"]),
    ] {
        let mut rule = rule(&on, RuleState::default());
        assert_eq!(step(&mut rule, 4, [1, 2, 3]).decision, None);
        let fired = step(&mut rule, 5, packets);
        assert_eq!(fired.decision, Some(Decision::Fire { window: 5 }));
        assert_eq!(nodes(&fired), chosen);
        let sum: u64 = packets.iter().sum();
        assert_eq!(
            serde_json::to_value(fired.actions.unwrap()).unwrap(),
            json!([{ "mark": sum.to_string() }])
        );
        assert_eq!(
            step(&mut rule, 5, packets).decision,
            None,
            "a period is judged once"
        );
        assert_eq!(
            step(&mut rule, 6, [1, 1, 1]).decision,
            Some(Decision::End { fired_at: 5 })
        );
    }
}

/// Each node has a template of its own. All get the values of the nodes together.
#[test]
fn templates_of_nodes_get_the_values_of_all_nodes() {
    let document = json!({ "watch": "p", "scope": "fleet", "when": "sum(ingress.packets) > 10", "do": [
        { "apply": { "name": "q", "template": "t", "expires": "1m", "variables": { "least": "{{sum(ingress.packets)}}" } } }] });
    let document = serde_json::from_value(document).unwrap();
    let mut rule =
        FleetRule::new(document, shape(&window(1)), LENGTH, RuleState::default()).unwrap();
    let quiet = step(&mut rule, 1, [1, 2, 3]);
    assert!(quiet.values.is_none() && quiet.actions.unwrap().is_empty());
    let fired = step(&mut rule, 2, [5, 6, 7]);
    let action = serde_json::to_value(&fired.actions.unwrap()[0]).unwrap();
    assert_eq!(
        (&action["apply"]["template"], &action["apply"]["config"]),
        (&json!("t"), &Value::Null)
    );
    assert_eq!(action["apply"]["variables"], json!({ "least": 18 }));
    let values = fired.values.unwrap();
    let fill = |text: &str| {
        let template = json!({ "ingress": { "variables": { "least": text } } });
        values.fill(&serde_json::from_value(template).unwrap())
    };
    let of = |text| fill(text).unwrap().ingress.unwrap().variables.unwrap();
    assert_eq!(
        of("{{sum(ingress.packets) - sum(previous.ingress.packets)}}")["least"],
        json!(12)
    );
    assert!(
        fill("{{sum(ingress.missing)}}")
            .unwrap_err()
            .contains("missing")
    );
}

/// A few slow answers at one node are nothing among many fast ones elsewhere.
#[test]
fn a_percentile_is_that_of_all_nodes() {
    let window = |slots: [(u64, u64); 2]| {
        let entries = slots.map(|(slot, count)| json!({ "key": slot, "value": count }));
        json!({ "window": { "seq": 1, "duration_ns": 10_000_000_000_u64 },
            "ingress": { "latency": { "histogram": true, "entries": entries } } })
    };
    let (fast, slow) = (window([(3, 900), (4, 60)]), window([(4, 10), (10, 30)]));
    let document = json!({ "watch": "p", "scope": "fleet", "when": "p95(ingress.latency) > 100", "do": [{ "mark": "slow" }] });
    let document = serde_json::from_value(document).unwrap();
    let mut rule = FleetRule::new(document, shape(&fast), LENGTH, RuleState::default()).unwrap();
    let labels = BTreeMap::new();
    let mut step = |period, documents: [&Value; 2]| {
        let windows = ["a", "b"].into_iter().zip(documents);
        let windows: Vec<_> = windows
            .map(|(node, document)| NodeWindow {
                node,
                document,
                labels: &labels,
            })
            .collect();
        rule.step(period, &windows)
    };
    assert_eq!(step(1, [&fast, &slow]).decision, None);
    let fired = step(2, [&slow, &slow]);
    assert_eq!(
        (fired.decision, nodes(&fired)),
        (Some(Decision::Fire { window: 2 }), vec!["a", "b"])
    );
}

/// The next process decides as the previous one would have decided, from any decisions that daemons
/// have recorded.
#[test]
fn the_next_process_goes_on_from_what_daemons_remember() {
    let packets = [
        [1, 1, 1],
        [9, 9, 9],
        [9, 9, 9],
        [0, 0, 0],
        [9, 9, 9],
        [0, 0, 0],
    ];
    let mut whole = rule(&json!("all"), RuleState::default());
    let mut events = Vec::new();
    let mut decisions = Vec::new();
    for (period, packets) in (1..).zip(packets) {
        let found = step(&mut whole, period, packets).decision;
        let end = super::end_of(period, LENGTH);
        // Each node reports the same event.
        let event = found.map(|found| FleetEvent {
            end,
            has_begun: matches!(found, Decision::Fire { .. }),
        });
        events.extend(event.into_iter().chain(event));
        decisions.push(found);
    }
    assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), 4);
    for start in 1..=6_u64 {
        let state = state_before(&events, start, LENGTH, 1);
        let mut next = rule(&json!("all"), state);
        for (period, packets) in (start..).zip(&packets[start as usize - 1..]) {
            assert_eq!(
                step(&mut next, period, *packets).decision,
                decisions[period as usize - 1],
                "{start}"
            );
        }
    }
}

#[test]
fn periods_and_reasons_are_known_again() {
    let at = |seconds: i64| seconds * 1_000_000_000 + 3_000_000;
    assert_eq!(
        [14, 15, 20, 24].map(|seconds| period_of(at(seconds), LENGTH)),
        [1, 2, 2, 2]
    );
    let (end, of) = (20_000_000_000, FleetEvent::of_reason);
    assert_eq!(
        of(&reason("scan", end), "scan", true),
        Some(FleetEvent {
            end,
            has_begun: true
        })
    );
    assert_eq!(
        of(&reason("scan", end), "scan", false),
        Some(FleetEvent {
            end,
            has_begun: false
        })
    );
    assert_eq!(
        of(&reason_back("scan", end), "scan", true),
        Some(FleetEvent {
            end,
            has_begun: false
        })
    );
    assert_eq!(of(&reason("scans", end), "scan", true), None);
    assert_eq!(of("why", "scan", true), None);
}

#[test]
fn what_a_fleet_can_not_do_is_refused() {
    let refused = |changes: Value| {
        let mut document =
            json!({ "watch": "p", "scope": "fleet", "when": "true", "do": [{ "mark": "x" }] });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        let rejection = FleetRule::check(&serde_json::from_value(document).unwrap()).unwrap_err();
        rejection.findings[0].field.clone().unwrap_or_default()
    };
    for (changes, field) in [
        (json!({ "on": "some" }), "on"),
        (json!({ "scope": "world" }), "scope"),
        (
            json!({ "do": [{ "change": { "name": "q-{{window.seq}}", "sample": 2 } }] }),
            "do[0].change.name",
        ),
        (
            json!({ "do": [{ "apply": { "name": "q-{{window.seq}}", "probe": "dns", "expires": "1m" } }] }),
            "do[0].apply.name",
        ),
    ] {
        assert_eq!(refused(changes), field);
    }
}
