//! Many daemons are asked at the same time.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;
use twinprobe_tests::http::Address;

use crate::scene::Scene;

fn socket(scene: &Scene) -> String {
    match scene.daemon.address() {
        Address::Unix(path) => format!("unix:{}", path.display()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn three_daemons_get_a_probe_and_their_counts_add_up() -> Result<()> {
    let mut scenes = [Scene::new()?, Scene::new()?, Scene::new()?];
    let mut servers = "# the fleet\n".to_owned();
    for (name, scene) in ["one", "two", "three"].iter().zip(&scenes) {
        writeln!(servers, "{name} {}", socket(scene))?;
    }
    scenes[0].write("servers", &servers)?;
    let table = scenes[0].succeed("apply -f count.yaml --servers servers");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[3],
        ["three", "count", "created", "mon0", "(xdp", "native)"],
        "{table}"
    );
    let list = scenes[0].succeed("list --servers servers");
    assert!(
        list.starts_with("NODE ") && list.lines().count() == 4,
        "{list}"
    );
    for (scene, packets) in scenes.iter_mut().zip([1_000, 20_000, 300_000]) {
        scene.generator.send(packets)?;
    }
    let merged: Value = serde_json::from_str(
        &scenes[0].succeed("metrics count --merge --servers servers -o json"),
    )?;
    let entries = &merged["ingress"]["seen"]["entries"];
    assert_eq!(
        (
            &entries[0]["value"]["packets"],
            entries.as_array().map(Vec::len)
        ),
        (&321_000.into(), Some(1)),
        "{merged}"
    );
    assert_eq!(merged["nodes"].as_array().map(Vec::len), Some(3));
    let again = scenes[0].succeed("apply -f count.yaml --servers servers");
    assert_eq!(again.matches("unchanged").count(), 3, "{again}");
    scenes[0].write(
        "many.yaml",
        "watch: count\nwhen: window.lost_windows > 5\ndo: [{ mark: much }]\n",
    )?;
    let rules = scenes[0].succeed("rules apply many -f many.yaml --servers servers");
    assert!(
        rules.starts_with("NODE ") && rules.matches("runs").count() == 3,
        "{rules}"
    );
    let listed: Value =
        serde_json::from_str(&scenes[0].succeed("rules list --servers servers -o json"))?;
    let name = |at: usize| listed[at]["rules"][0]["name"] == "many";
    assert!(
        name(0) && name(1) && name(2) && listed[1]["server"] == "two",
        "{listed}"
    );
    let refused = scenes[0].run("rules apply many -f count.yaml --servers servers")?;
    assert!(
        refused.code != 0,
        "a configuration is no rule: {}",
        refused.out
    );
    scenes[0].write(
        "wrong.yaml",
        "watch: count\nwhen: 1 +\ndo: [{ change: { name: a, sample: many } }]\n",
    )?;
    let refused = scenes[0].run("rules apply many -f wrong.yaml --servers servers")?;
    assert!(
        refused.err.contains("line 2: when, column")
            && refused.err.contains("line 3: do[0].change.sample"),
        "{}",
        refused.err
    );
    let deleted = scenes[0].succeed("rules delete many --servers servers");
    assert_eq!(deleted.matches("deleted").count(), 3, "{deleted}");
    assert_eq!(
        scenes[0].succeed("rules list --servers servers"),
        "no rules\n"
    );
    let usage = scenes[0].run("watch count --servers servers")?;
    assert_eq!(usage.code, 2, "{}", usage.err);
    Ok(())
}

#[test]
fn three_daemons_show_take_back_and_remove_a_probe() -> Result<()> {
    let scenes = [Scene::new()?, Scene::new()?, Scene::new()?];
    let servers: String = scenes.iter().map(|scene| socket(scene) + "\n").collect();
    scenes[0].write("servers", &format!("{servers}gone unix:/nowhere/socket\n"))?;
    let running = scenes
        .iter()
        .map(|scene| format!(" --server {}", socket(scene)))
        .collect::<String>();
    scenes[0].succeed(&format!("apply -f count.yaml{running}"));
    let first = std::fs::read_to_string(scenes[0].folder.path().join("count.yaml"))?;
    scenes[0].write("count.yaml", &first.replace("What came", "Packets"))?;
    scenes[0].succeed(&format!("apply -f count.yaml{running}"));

    let shown: Value = serde_json::from_str(&scenes[0].succeed(&format!("get count{running}")))?;
    let revisions: Vec<_> = shown
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| &one["probe"]["revision"])
        .collect();
    assert_eq!(revisions, [2, 2, 2], "{shown}");
    let tables = scenes[0].succeed(&format!("get count -o table{running}"));
    assert_eq!(tables.matches("\nnode ").count(), 3, "{tables}");

    let back = scenes[0].succeed(&format!("rollback count{running}"));
    assert_eq!(back.matches(" rolled back ").count(), 3, "{back}");
    for scene in &scenes {
        assert_eq!(
            scene.daemon.json("/v1/probes/count")["config"]["ingress"]["metrics"][0]["help"],
            "What came"
        );
    }

    // A change that fails at one daemon is done at the others.
    scenes[1].succeed("delete count");
    for command in [
        "get count --servers servers",
        "rollback count 1 --servers servers",
        "delete count --servers servers",
    ] {
        let partly = scenes[0].run(command)?;
        assert_eq!(partly.code, 1, "{command}: {}{}", partly.out, partly.err);
        assert!(
            partly.err.contains("2 of 4 servers failed") && partly.err.contains("gone"),
            "{}",
            partly.err
        );
    }
    for scene in &scenes {
        scene.daemon.get("/v1/probes/count").expect(404);
    }
    let outcomes = scenes[0].run(&format!("delete count -o json{running}"))?;
    let outcomes: Value = serde_json::from_str(&outcomes.out)?;
    assert_eq!(
        (outcomes.as_array().map(Vec::len), &outcomes[2]["outcome"]),
        (Some(3), &"refused".into()),
        "{outcomes}"
    );
    Ok(())
}

#[test]
fn an_apply_that_fails_somewhere_leaves_nothing_behind() -> Result<()> {
    let scenes = [Scene::new()?, Scene::new()?];
    let changed = std::fs::read_to_string(scenes[0].folder.path().join("count.yaml"))?;
    scenes[0].succeed("apply -f count.yaml");
    scenes[0].write("count.yaml", &changed.replace("What came", "Packets"))?;
    scenes[0].write("new.yaml", &changed)?;
    let servers = format!(
        "{}\n{}\ngone unix:/nowhere/socket\n",
        socket(&scenes[0]),
        socket(&scenes[1])
    );
    scenes[0].write("servers", &servers)?;
    let all = "-f count.yaml -f new.yaml --servers servers";
    let refused = scenes[0].run(&format!("apply {all} --rollback-on-failure"))?;
    assert_eq!(refused.code, 1);
    assert!(
        refused.out.contains("replaced") && refused.out.contains("failed"),
        "{}",
        refused.out
    );
    assert!(
        refused.err.contains("rolled back count to revision 1"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("1 of 3 servers failed"),
        "{}",
        refused.err
    );
    let status = scenes[0].daemon.json("/v1/probes/count");
    assert_eq!(
        status["config"]["ingress"]["metrics"][0]["help"],
        "What came"
    );
    scenes[0].daemon.get("/v1/probes/new").expect(404);
    scenes[1].daemon.get("/v1/probes/count").expect(404);
    // Without the option earlier steps stay, and the exit status reports the failure.
    let partly = scenes[0].run(&format!("apply {all} -o json"))?;
    let outcomes: Value = serde_json::from_str(&partly.out)?;
    assert_eq!(
        (partly.code, outcomes.as_array().map(Vec::len)),
        (1, Some(5)),
        "{outcomes}"
    );
    scenes[1].daemon.get("/v1/probes/count").expect(200);
    Ok(())
}
