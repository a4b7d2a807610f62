//! Rules over the fleet as objects: the operator judges the windows of three real daemons together,
//! and acts at them.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::rules::{apply, status};
use crate::scene::{Fleet, FleetOptions};
use crate::streams::{Member, credentials, endpoints};

/// The packets that one node gets in a second, and the sum that two nodes exceed in a window of a
/// second.
const RATE: u64 = 500;
const SUM: u64 = 900;
/// The name under which the operator reads windows for the rule.
const COLLECTOR: &str = "rule.flood";

/// Deploys the probe `fine` at the nodes `on` while the nodes get many packets together.
fn rule(on: &Value) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config
        .as_object_mut()
        .expect("an object")
        .remove("interface");
    json!({
        "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringRule", "metadata": { "name": "flood" },
        "spec": {
            "scope": "fleet",
            "nodeSelector": { "role": "edge" },
            "rule": {
                "on": on, "watch": "p", "when": format!("sum(ingress.packets) > {SUM}"), "until": "sum(ingress.packets) == 0", "cooldown": "0s",
                "do": [{ "apply": { "name": "fine", "config": config, "expires": "10m" } }] } },
    })
}

/// Returns the creations and removals of `fine` at a node.
fn changes(member: &Member) -> Vec<String> {
    let history = member.daemon.json("/v1/history");
    let entries = history["history"].as_array().into_iter().flatten();
    let own = entries.filter(|entry| entry["probe"] == "fine");
    own.map(|entry| entry["change"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Waits until exactly these nodes have the probe of the rule.
fn acts_at(fleet: &Fleet, members: &[Member], expected: [bool; 3]) -> Result<()> {
    wait_for("the probes of the rule", PATIENCE, || {
        let found = members
            .iter()
            .map(|member| member.daemon.get("/v1/probes/fine").status == 200);
        let found: Vec<bool> = found.collect();
        ensure!(found == expected, "{found:?}");
        Ok(())
    })
    .with_context(|| fleet.logs())
}

/// Waits until the rule has judged windows that are not closed yet.
fn judges(fleet: &Fleet, member: &Member) -> Result<()> {
    let newest = member.daemon.json("/v1/probes/p")["windows"]["newest"]
        .as_u64()
        .unwrap_or_default();
    wait_for("acknowledgements", PATIENCE, || {
        let list = member
            .daemon
            .json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
        ensure!(list["after"].as_u64() > Some(newest + 1), "{list}");
        Ok(())
    })
    .with_context(|| fleet.logs())
}

fn events(fleet: &Fleet) -> Result<Vec<String>> {
    let query = [
        "get",
        "events",
        "-o",
        "json",
        "--field-selector",
        "involvedObject.name=flood",
    ];
    let events: Value = serde_json::from_str(&fleet.cluster.kubectl(&query, "")?)?;
    let reasons = events["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["reason"].as_str());
    Ok(reasons.map(str::to_owned).collect())
}

/// A fleet whose operator reaches three daemons. The first and the last are in the rack `a`.
fn scene(folder: &std::path::Path) -> Result<(Fleet, Vec<Member>)> {
    credentials(folder, "operator")?;
    let file = |name: &str| folder.join(name).display().to_string();
    let operator = [
        "--daemons-token-file".to_owned(),
        file("token"),
        "--daemons-ca".to_owned(),
        file("ca"),
    ]
    .to_vec();
    let fleet = Fleet::with(
        0,
        FleetOptions {
            rules: true,
            operator,
            ..FleetOptions::default()
        },
    )?;
    let members = [(20, "a"), (21, "b"), (22, "a")].map(|(at, rack)| {
        let window = json!({ "interval": "1s", "retain": 10_000, "collectors": [COLLECTOR] });
        Member::new(
            at,
            folder,
            &json!({ "labels": { "rack": rack }, "window": window }),
        )
    });
    let members: Vec<Member> = members.into_iter().collect::<Result<_>>()?;
    let names = members
        .iter()
        .map(|member| (member.name.as_str(), "edge"))
        .chain([("elsewhere", "core")]);
    for (name, role) in names {
        let metadata = json!({ "name": name, "labels": { "role": role } });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
        fleet
            .cluster
            .kubectl(&["create", "-f", "-"], &node.to_string())?;
    }
    endpoints(&fleet.cluster, &members.iter().collect::<Vec<_>>())?;
    Ok((fleet, members))
}

/// No node alone has enough packets. The operator is killed while the rule fires.
#[test]
fn a_rule_over_the_fleet_sees_the_sum_and_acts_where_it_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut fleet, members) = scene(folder.path())?;
    wait_for("the webhook", PATIENCE, || {
        apply(&fleet, &rule(&json!({ "rack": "a" }))).map(drop)
    })?;
    // The operator reaches all daemons before the first one has told its windows.
    let is_judging = |it: &Value| {
        it["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it["reason"] == "Judging"))
    };
    let all = status(&fleet, "the operator judges", |it| {
        it["counts"]["running"] == 3 && is_judging(it)
    })?;
    ensure!(
        all["counts"]["selected"] == 3 && all["counts"]["failed"] == 0 && all["firing"] == 0,
        "{all:#}"
    );
    let conditions = all["conditions"].as_array().into_iter().flatten();
    ensure!(
        conditions
            .filter(|it| it["reason"] == "Judging" || it["reason"] == "Running")
            .count()
            == 2,
        "{all:#}"
    );
    let first = members[0].traffic(RATE)?;
    judges(&fleet, &members[0])?;
    ensure!(
        status(&fleet, "the same status", |_| true)?["fired"].is_null(),
        "one node is not enough"
    );

    let second = members[1].traffic(RATE)?;
    acts_at(&fleet, &members, [true, false, true])?;
    let fires = status(&fleet, "the firing", |it| it["firing"] == 2)?;
    ensure!(
        fires["fired"].is_string() && fires["ended"].is_null(),
        "{fires:#}"
    );
    let fine = members[2].daemon.json("/v1/probes/fine");
    ensure!(
        fine["labels"]["fleet_rule"] == "flood" && fine["expires_at"].is_string(),
        "{fine}"
    );

    // The next operator knows from the daemons and the object that the rule has fired.
    fleet.operator = None;
    fleet.start_operator()?;
    judges(&fleet, &members[0])?;
    ensure!(
        members[2].daemon.json("/v1/probes/fine")["instance"] == fine["instance"],
        "it is the same probe"
    );
    drop((first, second));
    acts_at(&fleet, &members, [false, false, false])?;
    status(&fleet, "the end", |it| {
        it["firing"] == 0 && it["ended"].is_string() && it["fired"] == fires["fired"]
    })?;
    ensure!(
        changes(&members[2]) == ["created", "removed"],
        "{:?}",
        changes(&members[2])
    );
    ensure!(changes(&members[1]).is_empty(), "it is in another rack");
    wait_for("Events", PATIENCE, || {
        let events = events(&fleet)?;
        ensure!(
            events.iter().any(|it| it == "Fires") && events.iter().any(|it| it == "Ends"),
            "{events:?}"
        );
        Ok(())
    })?;

    // A new document of the rule ends the actions of the earlier document. The deletion of the rule
    // ends all actions.
    let _traffic = [members[0].traffic(RATE)?, members[1].traffic(RATE)?];
    acts_at(&fleet, &members, [true, false, true])?;
    apply(&fleet, &rule(&json!("where")))?;
    acts_at(&fleet, &members, [true, true, true])?;
    let again = status(&fleet, "the firing of the second document", |it| {
        it["firing"] == 3
    })?;
    ensure!(
        again["revision"] != fires["revision"] && again["since"] != fires["since"],
        "{again:#}"
    );
    ensure!(changes(&members[2]).ends_with(&["removed".to_owned(), "created".to_owned()]));
    let delete = fleet
        .cluster
        .kubectl(&["delete", "mr", "flood", "--timeout", "60s"], "");
    delete.with_context(|| fleet.logs())?;
    acts_at(&fleet, &members, [false, false, false])
}

/// A node without the probe is named, a rule that can't be judged says why, and one that fires too
/// often stops.
#[test]
fn a_rule_over_the_fleet_says_what_is_missing_and_why_it_has_stopped() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (fleet, mut members) = scene(folder.path())?;
    members[1].daemon.delete("/v1/probes/p").expect(204);
    let mut known = rule(&json!("all"));
    known["spec"]["rule"]["when"] = json!("sum(ingress.missing) > 1");
    wait_for("the webhook", PATIENCE, || apply(&fleet, &known).map(drop))?;
    let waits = |it: &Value| {
        it["conditions"][1]["message"]
            .as_str()
            .is_some_and(|it| it.contains("missing"))
    };
    let unfit = status(&fleet, "the windows do not fit", waits)?;
    ensure!(
        unfit["conditions"][1]["reason"] == "Waiting" && unfit["counts"]["updated"] == 2,
        "{unfit:#}"
    );
    ensure!(
        unfit["conditions"][2]["message"] == "it runs on 0 of 3 nodes",
        "{unfit:#}"
    );
    ensure!(
        unfit["failures"][0]["node"] == *members[1].name
            && unfit["failures"][0]["stage"] == "probe",
        "{unfit:#}"
    );

    // The rule takes two actions, which is more than its limit of one action in an hour.
    let mut often = rule(&json!("all"));
    often["spec"]["rule"]["max_actions_per_hour"] = json!(1);
    often["spec"]["rule"]["when"] = json!("sum(ingress.packets) >= 0");
    often["spec"]["rule"]["until"] = json!("sum(ingress.packets) < 0");
    often["spec"]["rule"]["do"]
        .as_array_mut()
        .context("actions")?
        .push(json!({ "mark": "x" }));
    apply(&fleet, &often)?;
    let stopped = status(&fleet, "the rule has stopped itself", |it| {
        it["stopped"].is_string()
    })?;
    ensure!(
        stopped["stopped"]
            .as_str()
            .is_some_and(|it| it.contains("more than 1 actions")),
        "{stopped:#}"
    );
    ensure!(
        stopped["conditions"][1]["reason"] == "Stopped",
        "{stopped:#}"
    );
    ensure!(stopped["conditions"][3]["status"] == "True", "{stopped:#}");
    wait_for("an Event", PATIENCE, || {
        let events = events(&fleet)?;
        ensure!(events.iter().any(|it| it == "Stopped"), "{events:?}");
        Ok(())
    })?;

    // A rule for each node takes the place of the rule over the fleet.
    often["spec"]["scope"] = json!("node");
    often["spec"]["rule"]
        .as_object_mut()
        .context("a rule")?
        .remove("on");
    apply(&fleet, &often)?;
    status(&fleet, "the rule of the nodes", |it| {
        it["since"].is_null() && it["counts"]["silent"] == 3
    })?;
    fleet
        .cluster
        .kubectl(&["delete", "mr", "flood", "--timeout", "60s"], "")
        .with_context(|| fleet.logs())?;
    members.clear();
    Ok(())
}
