//! The pages about the fleet, whose commands need a cluster: the API server takes the objects on
//! them, prints the columns that they show, and the operator obeys the commands that they name.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::cluster::TOKEN;
use twinprobe_tests::helper;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Fleet, FleetOptions};
use crate::streams::credentials;

const PAGES: [&str; 4] = [
    "fleet.md",
    "how-to/canary.md",
    "how-to/pods.md",
    "how-to/fleet.md",
];

fn read(page: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(page);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}");
    let begins = page.split("\n```").skip(1).step_by(2);
    let own = begins.filter(|block| format!("```{block}").starts_with(&fence));
    own.filter_map(|block| Some(block.split_once('\n')?.1))
        .collect()
}

/// The tables of `kubectl get` in a block: the words of the command, and those of the first line
/// below it.
fn tables(block: &str) -> impl Iterator<Item = (Vec<&str>, Vec<&str>)> {
    let lines: Vec<&str> = block.lines().collect();
    let pairs: Vec<_> = lines.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().filter_map(|(command, line)| {
        let asked = command
            .strip_prefix("$ kubectl get ")
            .filter(|_| line.starts_with("NAME "))?;
        Some((
            asked.split(' ').filter(|word| *word != "-w").collect(),
            line.split_whitespace().collect(),
        ))
    })
}

/// A cluster with two nodes, without agents, and an operator that may reach daemons.
fn scene(folder: &Path) -> Result<Fleet> {
    credentials(folder, "operator")?;
    let file = |name: &str| folder.join(name).display().to_string();
    let operator = vec![
        "--daemons-token-file".to_owned(),
        file("token"),
        "--daemons-ca".to_owned(),
        file("ca"),
    ];
    let fleet = Fleet::with(
        0,
        FleetOptions {
            rules: true,
            operator,
            ..FleetOptions::default()
        },
    )?;
    for (name, canary) in [("edge-003", "yes"), ("edge-117", "no")] {
        let labels = json!({ "kubernetes.io/os": "linux", "node-role.kubernetes.io/edge": "", "twinprobe.dev/canary": canary });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
        fleet
            .cluster
            .kubectl(&["create", "-f", "-"], &node.to_string())?;
    }
    Ok(fleet)
}

/// Waits until the rollout of `talkers` has this step, and `Progressing` this reason.
fn is_at(fleet: &Fleet, step: &str, reason: &str) -> Result<()> {
    wait_for(&format!("the step {step}, {reason}"), PATIENCE, || {
        let object: Value = serde_json::from_str(
            &fleet
                .cluster
                .kubectl(&["get", "mp", "talkers", "-o", "json"], "")?,
        )?;
        let status = &object["status"];
        let progressing = status["conditions"].as_array().into_iter().flatten();
        let progressing: Vec<_> = progressing
            .filter(|it| it["type"] == "Progressing")
            .map(|it| &it["reason"])
            .collect();
        ensure!(
            status["step"] == step && progressing == [reason],
            "{status:#}"
        );
        Ok(())
    })
    .with_context(|| fleet.logs())
}

#[test]
fn the_objects_of_the_pages_are_taken_and_their_commands_obeyed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fleet = scene(folder.path())?;
    let (mut objects, mut compared) = (0, 0);
    for name in PAGES {
        let page = read(name)?;
        for object in blocks(&page, "yaml")
            .into_iter()
            .filter(|block| block.contains("apiVersion: twinprobe.dev"))
        {
            // Objects with a scope wait for the operator's webhook to listen.
            wait_for("the object is taken", PATIENCE, || {
                fleet.cluster.kubectl(&["apply", "-f", "-"], object)
            })
            .with_context(|| format!("{name}:\n{object}"))?;
            objects += 1;
        }
        for (asked, expected) in blocks(&page, "console").into_iter().flat_map(tables) {
            let said = fleet
                .cluster
                .kubectl(&[&["get"], &asked[..]].concat(), "")?;
            let shown: Vec<&str> = said
                .lines()
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            ensure!(
                shown == expected,
                "{name}: kubectl get {asked:?} shows {shown:?}"
            );
            compared += 1;
        }
    }
    ensure!(
        objects >= 6 && compared >= 6,
        "{objects} objects and {compared} tables are on the pages"
    );

    // No agent reports, so the rollout waits at its canary.
    let admin = fleet.cluster.kubeconfig("admin", TOKEN)?;
    let command = |verb: &str| -> Result<String> {
        let output = Command::new(helper("twinprobe-operator")?)
            .args([verb, "talkers"])
            .env("KUBECONFIG", &admin)
            .output()?;
        ensure!(
            output.status.success(),
            "{verb}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    };
    is_at(&fleet, "canary", "RollingOut")?;
    command("pause")?;
    is_at(&fleet, "canary", "Paused")?;
    command("resume")?;
    is_at(&fleet, "canary", "RollingOut")?;
    let said = command("promote")?;
    ensure!(
        said.starts_with("talkers: talkers-") && said.ends_with("/canary is good\n"),
        "{said}"
    );
    is_at(&fleet, "1%", "RollingOut")?;
    Ok(())
}
