use serde_json::{Value, json};
use twinprobe_api::{RuleAction, RuleDocument};

use super::{Rule, Templates};
use crate::shapes::shape;
use crate::view::WindowView;

fn window() -> Value {
    json!({
        "window": { "seq": 1, "duration_ns": 1_000_000_000 },
        "ingress": { "talkers": { "entries": [
            { "key": "10.0.0.1", "value": { "bytes_total": 1 } },
            { "key": "10.0.0.2", "value": { "bytes_total": 70_000 } },
        ] } },
    })
}

fn rule(changes: &Value) -> Result<Rule, String> {
    let mut document = json!({
        "watch": "talkers",
        "when": "max(ingress.talkers) > 1000",
        "do": [{ "apply": {
            "name": "flows", "probe": "flow-features", "expires": "5m",
            "variables": { "only": "{{top(ingress.talkers)}}", "bytes": "{{max(ingress.talkers)}}" },
            "defines": { "NAME": "of-{{top(ingress.talkers)}}-{{window.seq}}" },
        } }],
    });
    for (name, value) in changes.as_object().expect("an object") {
        document[name] = value.clone();
    }
    let document: RuleDocument = serde_json::from_value(document).map_err(|error| error.to_string())?;
    Rule::new(document, shape(&window())).map_err(|rejection| {
        let findings = rejection.findings.iter();
        findings
            .map(|finding| format!("{}: {}", finding.field.as_deref().unwrap_or(""), finding.message))
            .collect()
    })
}

#[test]
fn actions_take_values_from_the_window() -> Result<(), String> {
    let window = window();
    let actions = rule(&json!({}))?.actions(&WindowView::new(&window)?, None, &Templates::new())?;
    let [RuleAction::Apply(probe)] = &*actions else { panic!("{actions:?}") };
    assert_eq!(probe.variables["only"], "10.0.0.2");
    assert_eq!(probe.variables["bytes"], 70_000);
    assert_eq!(probe.defines["NAME"], "of-10.0.0.2-1");
    Ok(())
}

/// A value that must be a text stays a text, a program keeps its braces, and a template becomes the configuration with values.
#[test]
fn templates_and_texts_take_values_from_the_window() -> Result<(), String> {
    let window = window();
    let config = json!({
        "fill": { "only": [{ "key": "{{top(ingress.talkers)}}", "value": 1 }] },
        "labels": { "loudest": "{{max(ingress.talkers)}}" },
        "ingress": {
            "source": "int a[1][1] = {{1}};",
            "defines": { "LEAST": "{{max(ingress.talkers)}}" }, "variables": { "least": "{{max(ingress.talkers)}}" },
            "metrics": [{ "name": "m", "map": "m" }]
        }
    });
    let actions = json!([
        { "apply": { "name": "a", "template": "t", "expires": "5m" } },
        { "apply": { "name": "b", "config": config, "expires": "5m" } },
        { "mark": "{{max(ingress.talkers)}}" },
        { "change": { "name": "c", "sample": "{{window.seq}}" } }
    ]);
    let rule = rule(&json!({ "do": actions }))?;
    let view = WindowView::new(&window)?;
    let missing = rule.actions(&view, None, &Templates::new()).expect_err("no template");
    assert!(missing.contains("no template named t"), "{missing}");
    let template = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let filled = rule.actions(&view, None, &Templates::from([("t".to_owned(), template)]))?;
    let filled = serde_json::to_value(filled).map_err(|error| error.to_string())?;
    for (index, field) in [(0, "template"), (1, "config")] {
        let config = &filled[index]["apply"]["config"];
        assert!(filled[index]["apply"].get(field).is_some(), "{filled}");
        assert_eq!(config["fill"]["only"][0]["key"], "10.0.0.2", "{filled}");
        assert_eq!(config["labels"]["loudest"], "70000", "{filled}");
        assert_eq!(config["ingress"]["source"], "int a[1][1] = {{1}};", "{filled}");
        assert_eq!(config["ingress"]["defines"]["LEAST"], "70000", "{filled}");
        assert_eq!(config["ingress"]["variables"]["least"], 70_000, "{filled}");
    }
    assert_eq!(
        (&filled[2]["mark"], &filled[3]["change"]["sample"]),
        (&json!("70000"), &json!(1)),
        "{filled}"
    );
    Ok(())
}

#[test]
fn rules_with_mistakes_are_refused() {
    let apply = |probe: Value| json!({ "do": [{ "apply": probe }] });
    for (changes, said) in [
        (json!({ "when": "max(ingress.talkers)" }), "when: a condition is true or false"),
        (json!({ "until": "1 +" }), "until: "),
        (json!({ "for": 0 }), "for: 0 windows"),
        (json!({ "cooldown": "soon" }), "cooldown: \"soon\" is not a duration"),
        (json!({ "max_actions_per_hour": 0 }), "max_actions_per_hour: 0 actions"),
        (json!({ "do": [] }), "do: 0 actions"),
        (json!({ "do": [{ "notify": "ftp://x" }] }), "do[0].notify: \"ftp://x\" is not a URL"),
        (
            json!({ "do": [{ "delete": "talkers" }] }),
            "do[0].delete: the rule would delete the probe that it watches",
        ),
        (
            json!({ "do": [{ "mark": "{{top(ingress.none)}}" }] }),
            "do[0]: {{top(ingress.none)}}, column 12: ingress has no",
        ),
        (json!({ "do": [{ "mark": "{{top(" }] }), "do[0]: \"{{top(\" has {{ without }}"),
        (
            apply(json!({ "name": "talkers", "probe": "dns", "expires": "1m" })),
            "do[0].apply.name: the rule watches",
        ),
        (apply(json!({ "name": "a", "expires": "1m" })), "do[0].apply: give one of `probe`"),
        (apply(json!({ "name": "a", "probe": "dns", "expires": "1y1" })), "do[0].apply.expires: "),
        (json!({ "do": [{ "change": { "name": "a" } }] }), "do[0].change: changes nothing"),
        (
            json!({ "do": [{ "change": { "name": "a", "defines": { "X": "{{top(ingress.none)}}" } } }] }),
            "do[0]: {{top(ingress.none)}}, column 12: ingress has no",
        ),
        (
            json!({ "do": [{ "change": { "name": "a", "defines": { "X": "1" } } }, { "delete": "a" }] }),
            "do[0].change.name: another action of the rule",
        ),
        (json!({ "whenn": "true" }), "unknown field `whenn`"),
    ] {
        let message = rule(&changes).expect_err("a mistake");
        assert!(message.contains(said), "{changes}: {message}");
    }
}
