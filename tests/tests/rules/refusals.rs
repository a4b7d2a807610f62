//! Rules that are refused, with the place of each mistake.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, Topology};

use crate::scene::{close, counter, deploys, generator, rule, wait_for_rule};

#[test]
fn mistakes_are_told_with_their_places() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon.put("/v1/probes/q", &counter()).expect(201);
    let marks = json!([{ "mark": "many" }]);
    let with = |field: &str, value: Value| {
        let mut rule = rule(&marks);
        rule[field] = value;
        rule
    };
    let mut enforces = deploys("fine");
    enforces["apply"]["config"]["ingress"]["verdict"] = json!("sometimes");
    let library = json!({ "apply": { "name": "fine", "probe": "no-such-probe", "expires": "1m" } });
    let chosen = json!({ "apply": { "name": "fine", "probe": "dns", "expires": "1m", "defines": { "NONE": "1" } } });
    for (document, field, message) in [
        (
            with("when", json!("sum(ingress.bytes) > 1")),
            "when",
            "bytes",
        ),
        (with("when", json!("sum(ingress.packets)")), "when", ""),
        (
            with("watch", json!("none")),
            "watch",
            "there is no probe named none",
        ),
        (with("do", json!([])), "do", "1 to 8"),
        (
            with(
                "do",
                json!([{ "mark": "{{sum(ingress.packets)}}".repeat(30_000) }]),
            ),
            "do[0].mark",
            "at most 64 expressions",
        ),
        (with("cooldown", json!("often")), "cooldown", "often"),
        (
            rule(&json!([deploys("p")])),
            "do[0].apply.name",
            "the probe of this name",
        ),
        (
            rule(&json!([deploys("q")])),
            "do[0].apply.name",
            "has not made",
        ),
        (rule(&json!([enforces])), "do[0].apply.config", "sometimes"),
        (
            rule(&json!([library])),
            "do[0].apply.probe",
            "no-such-probe",
        ),
        (rule(&json!([chosen])), "do[0].apply", "NONE"),
    ] {
        let answer = daemon.put("/v1/rules/r", &document).expect(422).json();
        let errors = answer["errors"].as_array().cloned().unwrap_or_default();
        let is_it = |error: &Value| {
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
            text("field").starts_with(field) && text("message").contains(message)
        };
        ensure!(errors.iter().any(is_it), "{document}: {answer}");
    }
    ensure!(
        daemon.json("/v1/rules")["rules"] == json!([]),
        "nothing was put"
    );
    Ok(())
}

/// The daemon refuses two rules that would trigger each other forever.
#[test]
fn rules_that_lead_to_each_other_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon
        .put("/v1/rules/first", &rule(&json!([deploys("made")])))
        .expect(201);
    generator(&topology)?.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "first", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let mut second = rule(&json!([deploys("p")]));
    second["watch"] = json!("made");
    let answer = daemon.put("/v1/rules/second", &second).expect(422).json();
    let message = answer["errors"][0]["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("the windows of made lead to those of p, then of made"),
        "{answer}"
    );
    Ok(())
}
