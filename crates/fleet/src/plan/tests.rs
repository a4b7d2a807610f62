use std::time::Duration;

use serde_json::{Value, json};
use twinprobe_api::OnFailure;

use super::*;

fn plan(spec: Value) -> Result<FleetPlan, String> {
    let spec: FleetProbeSpec = serde_json::from_value(spec).unwrap();
    let library = |name: &str, _: &FleetProbeSpec| match name {
        "flows" => Ok(serde_json::from_value(config()).unwrap()),
        name => Err(format!("the library has no probe {name:?}")),
    };
    FleetPlan::new("flows", &spec, library).map_err(|rejection| {
        let lines = rejection.findings.iter();
        lines
            .map(|finding| {
                format!(
                    "{}: {}",
                    finding.field.as_deref().unwrap_or(""),
                    finding.message
                ) + "\n"
            })
            .collect()
    })
}

fn config() -> Value {
    json!({ "interface": "eth0", "ingress": { "source": "int x;", "metrics": [{ "name": "packets", "map": "packets" }] } })
}

#[test]
fn a_spec_becomes_a_configuration_with_its_place_and_lease() {
    let found = plan(json!({
        "library": "flows", "interval": "10s", "lease": "10m",
        "attach": { "interfaces": ["en*"], "exclude": ["en9"] },
        "rollout": { "canary": 1, "steps": ["12.5%", "100%"] },
    }))
    .unwrap();
    assert_eq!(
        (found.config.interface, found.config.interfaces),
        (None, Some(vec!["en*".to_owned()]))
    );
    assert_eq!(found.config.expires.as_deref(), Some("10m"));
    assert_eq!(
        found.config.window.unwrap().interval.as_deref(),
        Some("10s")
    );
    let steps: Vec<_> = found
        .rollout
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.share))
        .collect();
    assert_eq!(steps, [("canary", 0), ("12.5%", 1250), ("100%", 10_000)]);
    assert!(found.revision.starts_with("flows-"));
}

#[test]
fn selectors_of_pods_become_a_part_of_the_configuration() {
    let attach =
        json!({ "podSelector": { "app": "web" }, "namespaceSelector": { "team": "blue" } });
    let found = plan(json!({ "config": config(), "attach": attach })).unwrap();
    let pods = json!({ "labels": { "app": "web" }, "namespace_labels": { "team": "blue" } });
    assert_eq!(serde_json::to_value(&found.config.pods).unwrap(), pods);
    assert_eq!(
        (&found.config.interface, &found.config.interfaces),
        (&None, &None)
    );
    assert_ne!(
        found.revision,
        plan(json!({ "config": config() })).unwrap().revision
    );
    let both = json!({ "podSelector": { "app": "web" }, "interfaces": ["eth0"] });
    let said = plan(json!({ "config": config(), "attach": both })).unwrap_err();
    assert!(
        said.contains("spec.attach: podSelector and interfaces exclude each other"),
        "{said}"
    );
    let wrong = json!({ "podSelector": { "app web": "x" } });
    let said = plan(json!({ "config": config(), "attach": wrong })).unwrap_err();
    assert!(said.contains("spec.attach.podSelector: "), "{said}");
}

#[test]
fn defaults_are_those_of_the_contract() {
    let found = plan(json!({ "config": config() })).unwrap().rollout;
    let steps: Vec<_> = found.steps.iter().map(|step| step.share).collect();
    assert_eq!(
        (steps, found.windows, found.timeout),
        (vec![100, 1000, 5000, 10_000], 2, Duration::from_mins(5))
    );
    assert_eq!(found.on_failure, OnFailure::Rollback);
}

#[test]
fn every_mistake_is_named_with_its_field() {
    let said = plan(json!({
        "config": { "interface": "eth0", "ingress": { "hook": "xpd" } },
        "rollout": { "canary": 11, "steps": ["50%", "10%", "x"], "windows": 0, "timeout": "soon" },
    }))
    .unwrap_err();
    for field in [
        "spec.rollout.canary: 11 nodes",
        "spec.rollout.steps[1]: 10% is not more",
        "spec.rollout.steps[2]: \"x\" can't be a step",
        "spec.rollout.steps: do not end with 100%",
        "spec.rollout.windows: 0 is not a number of windows",
        "spec.rollout.timeout: \"soon\"",
        "spec.config.ingress.hook: ",
    ] {
        assert!(said.contains(field), "{field} in {said}");
    }
    assert!(
        plan(json!({}))
            .unwrap_err()
            .contains("spec: names no probe")
    );
    assert!(
        plan(json!({ "config": config(), "library": "flows" }))
            .unwrap_err()
            .contains("give one of them")
    );
    assert!(
        plan(json!({ "library": "flow" }))
            .unwrap_err()
            .contains("spec.library: the library has no probe")
    );
    assert!(
        plan(json!({ "config": config(), "defines": { "A": "1" } }))
            .unwrap_err()
            .contains("spec.defines")
    );
    assert!(
        plan(json!({ "config": 7 }))
            .unwrap_err()
            .contains("spec.config")
    );
}
