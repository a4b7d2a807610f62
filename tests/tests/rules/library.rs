//! The rules of the library: each fires over one capture, and not over another one with similar
//! traffic.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::attacks::{ScenePackets, scenes};
use twinprobe_tests::{Daemon, Topology, probes, replays};

/// Returns the text of a rule of the library.
pub fn text(name: &str) -> Result<String> {
    let path = probes::directory()
        .join("rules")
        .join(format!("{name}.yaml"));
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Returns the decisions of a rule in YAML over these packets.
pub fn trial(
    daemon: &Daemon,
    rule: &str,
    packets: &ScenePackets,
    query: &str,
) -> twinprobe_tests::Response {
    let rule: Value = yaml_serde::from_str(rule).expect("a rule");
    let rule = rule.to_string();
    let parts = [
        ("rule", rule.as_bytes()),
        ("capture", &packets.ingress[..]),
        ("egress-capture", &packets.egress[..]),
    ];
    replays::request(daemon, &format!("/v1/replay/rule{query}"), &parts)
}

#[test]
fn each_rule_of_the_library_fires_over_an_attack_alone() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let scenes = scenes();
    for scene in &scenes {
        let rule = text(scene.rule)?;
        let report = trial(&daemon, &rule, &scene.attack, "").expect(200).json();
        let decisions = report["decisions"].as_array().cloned().unwrap_or_default();
        let found: Vec<_> = decisions
            .iter()
            .map(|decision| json!([decision["window"], decision["decision"]]))
            .collect();
        let [fires, ends] = scene.fires;
        ensure!(
            found == [json!([fires, "fire"]), json!([ends, "end"])],
            "{}: {report}",
            scene.rule
        );
        ensure!(
            report["windows"] == 9 && decisions[0]["error"].is_null(),
            "{}: {report}",
            scene.rule
        );
        let mark = decisions[0]["do"][1]["mark"].as_str().unwrap_or_default();
        ensure!(
            !mark.is_empty() && !mark.contains("{{"),
            "{}: {report}",
            scene.rule
        );
        let report = trial(&daemon, &rule, &scene.harmless, "")
            .expect(200)
            .json();
        ensure!(
            report["decisions"] == json!([]) && report["windows"] == 9,
            "{}: {report}",
            scene.rule
        );
    }
    ensure!(
        daemon.json("/v1/probes")["probes"] == json!([]),
        "nothing was done"
    );
    // The daemon accepts each of them, and the probes that they would deploy.
    for scene in &scenes {
        let rule: Value = yaml_serde::from_str(&text(scene.rule)?)?;
        let watch = rule["watch"].as_str().context("a probe")?;
        daemon
            .put(
                &format!("/v1/probes/{watch}"),
                &probes::configuration(watch, "mon0")?,
            )
            .expect(201);
        let answer = daemon
            .put(&format!("/v1/rules/{}", scene.rule), &rule)
            .expect(201)
            .json();
        ensure!(answer["state"] == "watching", "{answer}");
    }
    Ok(())
}

/// Each rule of the folder has captures, and a line in the table of the page.
#[test]
fn no_rule_of_the_library_is_forgotten() -> Result<()> {
    let folder = probes::directory().join("rules");
    let page = fs::read_to_string(folder.join("README.md"))?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".yaml") else {
            continue;
        };
        let text = text(name)?;
        let title = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# "))
            .context("a title")?;
        let rule: Value = yaml_serde::from_str(&text)?;
        let watch = rule["watch"].as_str().unwrap_or_default();
        let line = format!("| [{name}]({name}.yaml) | [{watch}](../{watch}/README.md) | {title} |");
        ensure!(
            page.contains(&line),
            "probes/rules/README.md has no line {line}"
        );
        names.insert(name.to_owned());
    }
    let scenes: BTreeSet<String> = scenes().iter().map(|scene| scene.rule.to_owned()).collect();
    ensure!(names == scenes, "{names:?} and {scenes:?}");
    Ok(())
}
