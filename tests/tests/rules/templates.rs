//! Rules that deploy configurations which are kept by name.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{close, counter, generator, rule, wait_for_rule};

/// Returns a template whose counter counts each packet `least` times, as often as the window of the
/// rule has packets.
fn template() -> Value {
    let mut config = counter();
    config
        .as_object_mut()
        .expect("an object")
        .remove("interface");
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nconst volatile __u64 least = 1;\n\
        int braces[1][1] = {{1}};\n\
        struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64); __uint(max_entries, 1); } packets SEC(\".maps\");\n\
        struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, __u32); __type(value, __u64); __uint(max_entries, 8); } loud SEC(\".maps\");\n\
        SEC(\"xdp\") int count(struct xdp_md *ctx) { __u32 key = 0; __u64 *value = bpf_map_lookup_elem(&packets, &key);\n\
        if (value) __sync_fetch_and_add(value, STEP + least); bpf_map_lookup_elem(&loud, &key); return XDP_PASS; }\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    config["ingress"]["source"] = json!(source);
    config["ingress"]["variables"] = json!({ "least": "{{sum(ingress.packets)}}" });
    config["ingress"]["defines"] = json!({ "STEP": "{{window.seq}}00" });
    config["fill"] =
        json!({ "loud": [{ "key": "{{window.seq}}", "value": "{{sum(ingress.packets)}}" }] });
    config
}

fn applies(template: &str) -> Value {
    rule(&json!([{ "apply": { "name": "fine", "template": template, "expires": "10m" } }]))
}

#[test]
fn a_rule_deploys_a_template_with_values_of_the_window() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon.put("/v1/rules/many", &applies("t")).expect(422);
    daemon.put("/v1/templates/t", &template()).expect(201);
    daemon.put("/v1/templates/t", &template()).expect(200);
    daemon.put("/v1/rules/many", &applies("t")).expect(201);
    let shown = daemon.json("/v1/templates/t");
    ensure!(
        shown["revision"] == 1 && shown["rules"] == json!(["many"]),
        "{shown}"
    );
    ensure!(shown["config"]["ingress"]["source"].is_string(), "{shown}");
    let list = daemon.json("/v1/templates");
    ensure!(
        list["templates"][0]["config"]["ingress"]["source"].is_null(),
        "{list}"
    );
    let refused = daemon.delete("/v1/templates/t").expect(409).json();
    ensure!(
        refused["detail"]
            .as_str()
            .is_some_and(|text| text.contains("rule many")),
        "{refused}"
    );

    // The template is still there after a kill, and in the next firing.
    let daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        daemon.kill()?,
    )?;
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let fired = &status["firings"][0]["do"][0]["apply"];
    ensure!(
        fired["template"] == "t" && fired["config"]["ingress"]["source"].is_null(),
        "{status}"
    );
    let fine = daemon.json("/v1/probes/fine");
    ensure!(
        fine["config"]["ingress"]["variables"] == json!({ "least": 10 }),
        "{fine}"
    );
    ensure!(
        fine["config"]["ingress"]["defines"] == json!({ "STEP": "100" }),
        "{fine}"
    );
    let entries = daemon.json("/v1/probes/fine/maps/loud/entries");
    ensure!(
        entries["entries"] == json!([{ "key": 1, "value": 10 }]),
        "{entries}"
    );
    generator.send(2)?;
    let document = daemon
        .request("POST", "/v1/probes/fine/windows", &[], b"")
        .expect(201)
        .json();
    ensure!(
        document["ingress"]["packets"]["entries"][0]["value"] == 2 * 110,
        "{document}"
    );

    daemon.delete("/v1/rules/many").expect(204);
    daemon.delete("/v1/templates/t").expect(204);
    daemon.get("/v1/templates/t").expect(404);
    Ok(())
}

/// Mistakes are reported when they are made: a PUT of the template reports its own and those of
/// rules that name it, a PUT of the rule reports the rule's.
#[test]
fn mistakes_of_templates_are_told() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let with = |field: &str, value: Value| {
        let mut template = template();
        let (above, name) = field.rsplit_once('/').expect("a path");
        template.pointer_mut(above).expect("an object")[name] = value;
        template
    };
    let unknown = json!({ "least": "{{sum(ingress.bytes)}}" });
    // While no rule names the template, the daemon does not know which windows the template is for.
    daemon
        .put(
            "/v1/templates/t",
            &with("/ingress/variables", unknown.clone()),
        )
        .expect(201);
    let refused = daemon
        .put("/v1/rules/many", &applies("t"))
        .expect(422)
        .json();
    let field = "do[0].apply.template.ingress.variables.least";
    ensure!(refused["errors"][0]["field"] == field, "{refused}");
    daemon.put("/v1/templates/t", &template()).expect(200);
    daemon.put("/v1/rules/many", &applies("t")).expect(201);
    for (config, field, said) in [
        (
            with("/ingress/variables", unknown),
            "ingress.variables.least",
            "rule many names the template: ",
        ),
        (
            with("/ingress/variables", json!({ "least": "{{sum(}}" })),
            "ingress.variables.least",
            "{{sum(}}, column",
        ),
        (
            with("/ingress/hook", json!("nowhere")),
            "ingress.hook",
            "nowhere",
        ),
        (
            with("/ingress/metrics/0/help", json!("{{window.seq}} packets")),
            "ingress.metrics[0].help",
            "may stand in variables",
        ),
    ] {
        let refused = daemon.put("/v1/templates/t", &config).expect(422).json();
        let message = refused["errors"][0]["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains(said) && refused["errors"][0]["field"] == field,
            "{said}: {refused}"
        );
    }
    daemon.put("/v1/templates/a%20b", &template()).expect(422);
    ensure!(
        daemon.json("/v1/templates/t")["config"] == template(),
        "it stays as it was"
    );
    let both =
        json!([{ "apply": { "name": "fine", "template": "t", "probe": "dns", "expires": "1m" } }]);
    let refused = daemon
        .put("/v1/rules/many", &rule(&both))
        .expect(422)
        .json();
    ensure!(refused["errors"][0]["field"] == "do[0].apply", "{refused}");
    Ok(())
}
