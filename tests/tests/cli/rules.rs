//! Rules are tried on the windows that the daemon retains.

use anyhow::Result;
use serde_json::{Value, json};

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
    assert_eq!(json!(found), json!([[2, "fire"], [4, "end"], [5, "fire"]]), "{report}");
    assert_eq!(decisions[0]["do"][0]["apply"]["variables"], json!({ "limit": 30 }), "{report}");
    assert_eq!(decisions[2]["do"][1]["mark"], "key 7 in window 5", "{report}");
    assert_eq!(report["windows"], 5, "{report}");
    let table = scene.succeed("rules test -f rule.yaml");
    assert!(table.contains("apply fine for 5m; mark key 7 in window 2"), "{table}");
    assert!(table.ends_with("the rule would have fired 2 times in 5 windows of count\n"), "{table}");
    assert_eq!(
        scene.daemon.json("/v1/probes")["probes"].as_array().map(Vec::len),
        Some(1),
        "nothing was done"
    );
    Ok(())
}

/// The rule is checked against the windows: after a replacement with other fields it is checked again.
#[test]
fn a_rule_with_a_mistake_is_refused_with_its_place() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    windows(&mut scene, &[5])?;
    for (from, to, said) in [
        ("'packets') > 20", "'packet') >", "line 2: when, column 30 of the expression: "),
        (
            "ingress.seen, 'packets') > 20",
            "ingress.sean) > 20",
            "line 2: when, column 12 of the expression: ingress has no metric \"sean\"; it has seen",
        ),
        ("cooldown: 0s", "cooldown: later", "line 4: cooldown: \"later\" is not a duration"),
        ("cooldown: 0s", "cooldwn: 0s", "unknown field `cooldwn`"),
        ("name: fine", "name: count", "line 6: do[0].apply.name: the rule watches the probe of this name"),
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
    let source = std::fs::read_to_string(scene.folder.path().join("count.bpf.c"))?;
    scene.write("count.bpf.c", &source.replace("packets", "frames"))?;
    scene.succeed("apply -f count.yaml");
    windows(&mut scene, &[5])?;
    let refused = scene.run("rules test -f rule.yaml")?;
    assert!(refused.code == 1 && refused.err.contains("seen"), "{}", refused.err);
    Ok(())
}
