use serde_json::{Value, json};
use twinprobe_api::{RuleAction, RuleDocument};

use super::{Judgement, MissingValue, NoValue, Rule, Templates};
use crate::shapes::shape;
use crate::template::check_template;
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
    let document: RuleDocument =
        serde_json::from_value(document).map_err(|error| error.to_string())?;
    Rule::new(document, shape(&window())).map_err(|rejection| {
        let findings = rejection.findings.iter();
        findings
            .map(|finding| {
                format!(
                    "{}: {}",
                    finding.field.as_deref().unwrap_or(""),
                    finding.message
                )
            })
            .collect()
    })
}

#[test]
fn actions_take_values_from_the_window() -> Result<(), String> {
    let window = window();
    let actions =
        rule(&json!({}))?.actions(&WindowView::new(&window)?, None, Some(&Templates::new()))?;
    let [RuleAction::Apply(probe)] = &*actions else {
        panic!("{actions:?}")
    };
    assert_eq!(probe.variables["only"], "10.0.0.2");
    assert_eq!(probe.variables["bytes"], 70_000);
    assert_eq!(probe.defines["NAME"], "of-10.0.0.2-1");
    Ok(())
}

/// A value in the place of a text becomes a text, a program keeps its braces, and a template
/// becomes the configuration with values.
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
    let missing = rule
        .actions(&view, None, Some(&Templates::new()))
        .expect_err("no template");
    assert!(missing.contains("no template named t"), "{missing}");
    let template = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let filled = rule.actions(
        &view,
        None,
        Some(&Templates::from([("t".to_owned(), template)])),
    )?;
    let filled = serde_json::to_value(filled).map_err(|error| error.to_string())?;
    for (index, field) in [(0, "template"), (1, "config")] {
        let config = &filled[index]["apply"]["config"];
        assert!(filled[index]["apply"].get(field).is_some(), "{filled}");
        assert_eq!(config["fill"]["only"][0]["key"], "10.0.0.2", "{filled}");
        assert_eq!(config["labels"]["loudest"], "70000", "{filled}");
        assert_eq!(
            config["ingress"]["source"], "int a[1][1] = {{1}};",
            "{filled}"
        );
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
        (
            json!({ "when": "max(ingress.talkers)" }),
            "when: a condition is true or false",
        ),
        (json!({ "until": "1 +" }), "until: "),
        (json!({ "for": 0 }), "for: 0 is not a number of windows"),
        (
            json!({ "cooldown": "soon" }),
            "cooldown: \"soon\" is not a duration",
        ),
        (
            json!({ "max_actions_per_hour": 0 }),
            "max_actions_per_hour: 0 is not a limit of actions",
        ),
        (json!({ "do": [] }), "do: 0 actions"),
        (
            json!({ "do": [{ "notify": "ftp://x" }] }),
            "do[0].notify: \"ftp://x\" is not a URL",
        ),
        (
            json!({ "do": [{ "delete": "talkers" }] }),
            "do[0].delete: the rule would delete the probe that it watches",
        ),
        (
            json!({ "do": [{ "mark": "{{top(ingress.none)}}" }] }),
            "do[0].mark: {{top(ingress.none)}}, column 12: ingress has no",
        ),
        (
            json!({ "do": [{ "mark": "{{top(" }] }),
            "do[0].mark: \"{{top(\" has {{ without }}",
        ),
        (
            apply(json!({ "name": "talkers", "probe": "dns", "expires": "1m" })),
            "do[0].apply.name: the rule watches",
        ),
        (
            apply(json!({ "name": "a", "expires": "1m" })),
            "do[0].apply: give one of `probe`",
        ),
        (
            apply(json!({ "name": "a", "probe": "dns", "expires": "1y1" })),
            "do[0].apply.expires: ",
        ),
        (
            json!({ "do": [{ "change": { "name": "a" } }] }),
            "do[0].change: changes nothing",
        ),
        (
            json!({ "do": [{ "change": { "name": "a", "defines": { "X": "{{top(ingress.none)}}" } } }] }),
            "do[0].change.defines.X: {{top(ingress.none)}}, column 12: ingress has no",
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

/// A condition without a value neither fires nor ends anything.
#[test]
fn a_condition_without_a_value_decides_nothing() -> Result<(), String> {
    let (only, per) = (window(), "max(ingress.talkers) / window.lost_windows > 1");
    let view = WindowView::new(&only)?;
    for (changes, condition, why) in [
        (json!({ "when": per }), "when", NoValue::Number),
        (
            json!({ "until": per, "when": "window.seq > 5" }),
            "until",
            NoValue::Number,
        ),
        (
            json!({ "when": "max(previous.ingress.talkers) > 1" }),
            "when",
            NoValue::Previous,
        ),
    ] {
        let judged = rule(&changes)?.judge(&view, None)?;
        let missing = Some(MissingValue { condition, why });
        assert_eq!(
            judged,
            Judgement {
                when: false,
                until: false,
                missing
            },
            "{changes}"
        );
    }
    Ok(())
}

#[test]
fn samples_are_numbers() {
    let change = |sample: Value| json!({ "do": [{ "change": { "name": "a", "sample": sample } }] });
    for sample in [
        json!(1),
        json!(4_294_967_295_u32),
        json!("{{window.seq}}"),
        json!("{{2 * max(ingress.talkers)}}"),
    ] {
        assert!(rule(&change(sample.clone())).is_ok(), "{sample}");
    }
    for sample in [
        json!("64"),
        json!("many"),
        json!("{{window.seq}}0"),
        json!("{{window.seq}}{{window.seq}}"),
        json!("{{top(ingress.talkers)}}"),
        json!("{{window.seq > 1}}"),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(4_294_967_296_u64),
        json!([64]),
        json!({ "n": 64 }),
        json!(true),
    ] {
        let message = rule(&change(sample.clone())).expect_err("not a rate");
        assert!(
            message.starts_with("do[0].change.sample: "),
            "{sample}: {message}"
        );
    }
}

#[test]
fn messages_show_no_password() {
    let message =
        rule(&json!({ "do": [{ "notify": "htps://me:secret@host/x" }] })).expect_err("not a URL");
    assert_eq!(
        message,
        "do[0].notify: \"htps://me:***@host/x\" is not a URL that begins with https:// or http://"
    );
    let long = format!("https://me:secret@host/{}", "x".repeat(2048));
    let message = rule(&json!({ "do": [{ "notify": long }] })).expect_err("a long URL");
    assert!(
        message.starts_with("do[0].notify: the URL has 2071 bytes"),
        "{message}"
    );
}

/// Each expression costs a parser at the check, and each number a walk over the entries.
#[test]
fn the_expressions_of_a_rule_are_limited_together() {
    let marks = |text: &str, count: usize| json!({ "do": [{ "mark": text.repeat(count) }] });
    assert!(rule(&marks("{{1}}", 63)).is_ok());
    assert!(rule(&marks("{{max(ingress.talkers)}}", 63)).is_ok());
    let many = rule(&marks("{{1}}", 30_000)).expect_err("too many expressions");
    assert!(
        many.starts_with("do[0].mark: {{1}}, column 1: a rule or a template has at most 64 expr"),
        "{many}"
    );
    let apply = json!({ "name": "a", "probe": "dns", "expires": "1m", "variables": { "x": "{{1}}".repeat(32) },
        "defines": { "X": "{{1}}".repeat(32) } });
    let spread = rule(&json!({ "do": [{ "apply": apply }] })).expect_err("too many expressions");
    assert!(spread.starts_with("do[0].apply.defines.X: "), "{spread}");
    let both = "{{max(ingress.talkers) + min(ingress.talkers)}}";
    let readings = rule(&marks(both, 32)).expect_err("too many numbers");
    assert!(
        readings.contains("at most 64 numbers of windows"),
        "{readings}"
    );
    let document = json!({ "watch": "p", "when": "true", "do": [{ "mark": "{{1}}".repeat(64) }] });
    let document: RuleDocument = serde_json::from_value(document).expect("a rule");
    assert!(Rule::check(&document).is_err(), "without a shape, too");
    let labels = json!({ "labels": { "a": "{{1}}".repeat(65) } });
    let template = serde_json::from_value(labels).expect("a configuration");
    let refused = check_template(&template, None).expect_err("too many expressions");
    assert_eq!(refused.field.as_deref(), Some("labels.a"));
}

/// The key of an entry may be a text that a packet contained.
#[test]
fn texts_of_packets_become_neither_code_nor_parts_of_urls() -> Result<(), String> {
    let fill = |key: &str, action: &Value| {
        let mut window = window();
        window["ingress"]["talkers"]["entries"][1]["key"] = json!(key);
        let rule = rule(&json!({ "do": [action] }))?;
        let template = json!({ "ingress": { "defines": { "TAG": "x{{top(ingress.talkers)}}" } } });
        let template = serde_json::from_value(template).map_err(|error| error.to_string())?;
        let actions = rule.actions(
            &WindowView::new(&window)?,
            None,
            Some(&Templates::from([("t".to_owned(), template)])),
        )?;
        serde_json::to_value(&actions[0]).map_err(|error| error.to_string())
    };
    let defines = json!({ "TAG": "x{{top(ingress.talkers)}}", "OWN": "(1 + 2)" });
    let apply = |mut probe: Value| {
        (probe["name"], probe["expires"]) = (json!("a"), json!("1m"));
        json!({ "apply": probe })
    };
    for (action, field) in [
        (
            apply(json!({ "probe": "dns", "defines": defines })),
            "apply.defines.TAG",
        ),
        (
            json!({ "change": { "name": "a", "defines": defines } }),
            "change.defines.TAG",
        ),
        (
            apply(json!({ "config": { "ingress": { "defines": defines } } })),
            "apply.config.ingress.defines.TAG",
        ),
        (
            apply(json!({ "template": "t" })),
            "apply.config.ingress.defines.TAG",
        ),
        (
            apply(json!({ "config": { "netns": "/run/netns/{{top(ingress.talkers)}}" } })),
            "apply.config.netns",
        ),
    ] {
        for key in ["1; } void f() {", "a\nb", "../x", "é", "", &"a".repeat(65)] {
            let refused = fill(key, &action).expect_err("text of a packet");
            let said = "a value from a window may have only letters, digits and _.:-";
            assert!(
                refused.starts_with(&format!("{field}: {said}")),
                "{refused}"
            );
        }
        assert!(fill("2001:db8::1", &action).is_ok(), "{action}");
    }
    let notify =
        json!({ "notify": "https://host/a/{{top(ingress.talkers)}}?who={{max(ingress.talkers)}}" });
    let filled = fill("../x?a=b&c#d\r\n é", &notify)?;
    assert_eq!(
        filled["notify"],
        "https://host/a/..%2Fx%3Fa%3Db%26c%23d%0D%0A%20%C3%A9?who=70000"
    );
    Ok(())
}
