//! The overview of the fleet, as people see it through a port of this machine.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::cluster::ports;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Fleet, FleetOptions};

/// Sends a request with curl. Returns the body.
fn ask(url: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new("curl")
        .args(["-sS", "--fail-with-body"])
        .args(arguments)
        .arg(url)
        .output()?;
    ensure!(output.status.success(), "{url}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_operator_shows_objects_steps_costs_and_failures() -> Result<()> {
    let [port, numbers] = ports()?;
    let address = |port: u16| format!("127.0.0.1:{port}");
    let operator = vec![
        "--overview".to_owned(),
        address(port),
        "--listen-metrics".to_owned(),
        address(numbers),
    ];
    let fleet = Fleet::with(
        2,
        FleetOptions {
            operator,
            ..FleetOptions::default()
        },
    )?;
    let root = format!("http://127.0.0.1:{port}");
    fleet.apply("first", &json!({}))?;
    fleet.reaches("complete")?;
    let shows = |what: &str, is: &dyn Fn(&Value) -> bool| {
        wait_for(what, PATIENCE, || {
            let document: Value = serde_json::from_str(&ask(&format!("{root}/v1/fleet"), &[])?)?;
            let object = &document["objects"][0];
            ensure!(
                object["name"] == "seen" && object["isCurrent"] == true && is(object),
                "{document:#}"
            );
            Ok(())
        })
        .with_context(|| fleet.logs())
    };
    shows("the overview has it", &|object| {
        object["step"] == "complete"
            && object["counts"]["running"] == 2
            && object["worst"]["nsPerPacket"]
                .as_f64()
                .is_some_and(|cost| cost > 0.0)
            && object["worst"]["node"].is_string()
    })?;
    fleet.apply(
        "second",
        &json!({ "rollout": { "budget": { "nsPerPacket": 0 } } }),
    )?;
    fleet.reaches("rolled back")?;
    shows("the overview has the failure", &|object| {
        object["step"] == "rolled back" && object["failures"][0]["stage"] == "budget"
    })?;
    let metrics = ask(&format!("http://{}/metrics", address(numbers)), &[])?;
    for line in [
        "twinprobe_fleet_nodes{kind=\"MonitoringProbe\",name=\"seen\",state=\"selected\"} 2",
        "twinprobe_fleet_condition{kind=\"MonitoringProbe\",name=\"seen\",condition=\"Degraded\"} 1",
    ] {
        ensure!(
            metrics.lines().any(|found| found == line),
            "{line} in\n{metrics}"
        );
    }
    let page = ask(&format!("{root}/"), &[])?;
    let script = page
        .split('"')
        .find(|part| part.starts_with("/console/fleet-") && part.ends_with(".js"));
    let script = script.with_context(|| format!("the page was built: {page}"))?;
    ensure!(
        ask(&format!("{root}{script}"), &[])?.contains("/v1/fleet"),
        "{script}"
    );
    let elsewhere = ask(&format!("{root}/v1/fleet"), &["-H", "Host: fleet.example"]);
    ensure!(
        elsewhere.is_err_and(|error| error.to_string().contains("421")),
        "another host was answered"
    );
    Ok(())
}
