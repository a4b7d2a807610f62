//! The probes of all rules together do not cost more than the daemon allows.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{close, counter, deploys, generator, rule, wait_for_rule};

#[test]
fn an_action_beyond_the_budget_of_all_rules_is_refused() -> Result<()> {
    let topology = Topology::new()?;
    // The cost of a counter, some nanoseconds, is far below the budget. A chain of 20,000
    // multiplications, each of which waits for the previous one, is far beyond it on any processor.
    let budget = DaemonOptions::default().argument("--max-rule-ns-per-packet=5000");
    let daemon = Daemon::start_with(topology.monitor(), &budget)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let mut slow = deploys("slow");
    let source = &mut slow["apply"]["config"]["ingress"]["source"];
    let loops = "__u64 chain = 1;\n\tfor (int i = 0; i < 20000; i++) asm volatile(\"%0 *= 3\" : \"+r\"(chain));\n\treturn";
    *source = json!(
        source
            .as_str()
            .context("a source")?
            .replacen("return", loops, 1)
    );
    daemon
        .put("/v1/rules/small", &rule(&json!([deploys("fine")])))
        .expect(201);
    daemon
        .put("/v1/rules/large", &rule(&json!([deploys("first"), slow])))
        .expect(201);
    wait_for_rule(&daemon, "large", |status| {
        let error = status["last_error"].as_str().unwrap_or_default();
        error.starts_with("do[1]: slow could not be deployed now: ")
            && error.contains("--max-rule-ns-per-packet")
    })?;
    generator(&topology)?.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "small", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let status = wait_for_rule(&daemon, "large", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    let reason = status["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.starts_with("do[1] of window 1: ") && reason.contains("--max-rule-ns-per-packet"),
        "{status}"
    );
    daemon.get("/v1/probes/slow").expect(404);
    daemon.get("/v1/probes/first").expect(404);
    daemon.get("/v1/probes/fine").expect(200);
    // The budget binds rules only, so a client may deploy the same probe.
    let mut config = slow["apply"]["config"].clone();
    config["interface"] = json!("mon0");
    daemon.put("/v1/probes/slow", &config).expect(201);
    Ok(())
}
