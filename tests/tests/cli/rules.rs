//! Rules are tried on the windows that the daemon retains.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::attacks::scenes;

use crate::scene::Scene;

const RULE: &str = "\
watch: count
when: sum(ingress.seen, 'packets') > 20
until: sum(ingress.seen, 'packets') < 10
cooldown: 0s
do:
  - apply: { name: fine, probe: top-talkers, expires: 5m, variables: { limit: '{{sum(ingress.seen, \"packets\")}}' } }
  - mark: 'key {{top(ingress.seen)}} in window {{window.seq}}'
";

/// Closes a window for each number of packets.
fn windows(scene: &mut Scene, packets: &[u64]) -> Result<()> {
    for number in packets {
        scene.generator.send(*number)?;
        scene.succeed("windows count --close");
    }
    Ok(())
}

#[test]
fn a_rule_says_when_it_would_have_fired() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    windows(&mut scene, &[5, 30, 15, 3, 21])?;
    scene.write("rule.yaml", RULE)?;
    let report: Value = serde_json::from_str(&scene.succeed("rules test -f rule.yaml -o json"))?;
    let decisions = report["decisions"].as_array().expect("decisions");
    let of = |decision: &Value| json!([decision["window"], decision["decision"]]);
    let found: Vec<_> = decisions.iter().map(of).collect();
    assert_eq!(
        json!(found),
        json!([[2, "fire"], [4, "end"], [5, "fire"]]),
        "{report}"
    );
    assert_eq!(
        decisions[0]["do"][0]["apply"]["variables"],
        json!({ "limit": 30 }),
        "{report}"
    );
    assert_eq!(
        decisions[2]["do"][1]["mark"], "key 7 in window 5",
        "{report}"
    );
    assert_eq!(report["windows"], 5, "{report}");
    let table = scene.succeed("rules test -f rule.yaml");
    assert!(
        table.contains("apply fine for 5m; mark key 7 in window 2"),
        "{table}"
    );
    assert!(
        table.ends_with("the rule would have fired 2 times in 5 windows of count\n"),
        "{table}"
    );
    assert_eq!(
        scene.daemon.json("/v1/probes")["probes"]
            .as_array()
            .map(Vec::len),
        Some(1),
        "nothing was done"
    );
    Ok(())
}

/// The rule is checked against the windows: after a replacement with other fields it is checked
/// again.
#[test]
fn a_rule_with_a_mistake_is_refused_with_its_place() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    windows(&mut scene, &[5])?;
    for (from, to, said) in [
        (
            "'packets') > 20",
            "'packet') >",
            "line 2: when, column 30 of the expression: ",
        ),
        (
            "ingress.seen, 'packets') > 20",
            "ingress.sean) > 20",
            "line 2: when, column 12 of the expression: ingress has no metric \"sean\"; it has seen",
        ),
        (
            "cooldown: 0s",
            "cooldown: later",
            "line 4: cooldown: \"later\" is not a duration",
        ),
        ("cooldown: 0s", "cooldwn: 0s", "unknown field `cooldwn`"),
        (
            "name: fine",
            "name: count",
            "line 6: do[0].apply.name: the rule watches the probe of this name",
        ),
        ("expires: 5m, ", "", "missing field `expires`"),
        ("do:", "do: [", "line 6, column "),
    ] {
        scene.write("rule.yaml", &RULE.replacen(from, to, 1))?;
        let refused = scene.run("rules test -f rule.yaml")?;
        assert!(
            refused.code == 1 && refused.out.is_empty() && refused.err.contains(said),
            "{said}: {}",
            refused.err
        );
    }
    scene.write("rule.yaml", RULE)?;
    let source = fs::read_to_string(scene.folder.path().join("count.bpf.c"))?;
    scene.write("count.bpf.c", &source.replace("packets", "frames"))?;
    scene.succeed("apply -f count.yaml");
    windows(&mut scene, &[5])?;
    let refused = scene.run("rules test -f rule.yaml")?;
    assert!(
        refused.code == 1 && refused.err.contains("seen"),
        "{}",
        refused.err
    );
    Ok(())
}

/// A rule of the library is shown, changed, tried on captures and applied. The exit status tells
/// scripts the result.
#[test]
fn a_rule_of_the_library_is_tried_on_captures_and_applied() -> Result<()> {
    let scene = Scene::new()?;
    let list = scene.succeed("rules library");
    assert!(
        list.contains("syn-flood") && list.contains("tcp-flags"),
        "{list}"
    );
    let text = scene.succeed("rules library syn-flood");
    scene.write("flood.yaml", &text)?;
    let flood = scenes()
        .into_iter()
        .find(|scene| scene.rule == "syn-flood")
        .expect("a scene");
    let write = |name: &str, bytes: &[u8]| fs::write(scene.folder.path().join(name), bytes);
    write("flood.pcap", &flood.attack.ingress)?;
    write("clients.pcap", &flood.harmless.ingress)?;
    for rule in ["--library syn-flood", "-f flood.yaml"] {
        let report = scene.succeed(&format!("rules test {rule} flood.pcap -o json"));
        let report: Value = serde_json::from_str(&report)?;
        let found = report["decisions"].as_array().cloned().unwrap_or_default();
        let found: Vec<_> = found
            .iter()
            .map(|of| json!([of["window"], of["decision"]]))
            .collect();
        assert_eq!(json!(found), json!([[5, "fire"], [7, "end"]]), "{report}");
    }
    let table =
        scene.succeed("rules test --library syn-flood --set for=1 flood.pcap --interval 500ms");
    assert!(
        table.contains("apply syn-flood-senders for 5m; mark SYN flood; "),
        "{table}"
    );
    assert!(
        table.ends_with("the rule would have fired 1 times in 18 windows of tcp-flags\n"),
        "{table}"
    );
    let quiet = scene.run("rules test --library syn-flood clients.pcap")?;
    assert!(
        quiet.code == 3 && quiet.out.contains("fired 0 times in 9 windows"),
        "{}{}",
        quiet.out,
        quiet.err
    );
    for (command, code, said) in [
        (
            "rules test --library syn-flod flood.pcap",
            1,
            "no rule \"syn-flod\"; it has ",
        ),
        ("rules test --library syn-flood none.pcap", 1, "none.pcap"),
        (
            "rules test --library syn-flood --set fore=1 flood.pcap",
            1,
            "--set fore=1: unknown field `fore`",
        ),
        (
            "rules test --library syn-flood flood.pcap --interval often",
            1,
            "often",
        ),
        (
            "rules test --library syn-flood --set when=1 flood.pcap",
            1,
            "when",
        ),
        ("rules test flood.pcap", 2, "--file"),
        ("rules apply", 2, "--file"),
        (
            "rules apply --library syn-flood",
            1,
            "there is no probe named tcp-flags; deploy it first",
        ),
    ] {
        let refused = scene.run(command)?;
        assert!(
            refused.code == code && refused.err.contains(said),
            "{command}: {} {}",
            refused.code,
            refused.err
        );
    }
    scene.write("fleet.yaml", &format!("{RULE}\nscope: fleet\n"))?;
    let fleet = scene.run("rules test -f fleet.yaml --config count.yaml flood.pcap")?;
    assert!(
        fleet.err.contains("the windows of this daemon alone"),
        "{}",
        fleet.err
    );
    // A probe that neither runs nor is in the library sees packets by its file.
    scene.write("rule.yaml", &RULE.replace("> 20", "> 200"))?;
    let report = scene.succeed("rules test -f rule.yaml --config count.yaml flood.pcap -o json");
    let report: Value = serde_json::from_str(&report)?;
    assert_eq!(report["decisions"][0]["window"], 4, "{report}");
    scene.succeed("apply --probe tcp-flags --interface mon0");
    let applied = scene.succeed("rules apply --library syn-flood --set for=3");
    assert_eq!(applied, "rule syn-flood watches tcp-flags (revision 1)\n");
    assert_eq!(scene.daemon.json("/v1/rules/syn-flood")["rule"]["for"], 3);
    scene.write(
        "wrong.yaml",
        &RULE.replace("watch: count", "watch: tcp-flags"),
    )?;
    let refused = scene.run("rules apply wrong -f wrong.yaml")?;
    let place = "wrong.yaml is refused as a rule:\n  line 2: when, column 12 of the expression: ";
    assert!(
        refused.code == 1 && refused.err.contains(place),
        "{}",
        refused.err
    );
    Ok(())
}
