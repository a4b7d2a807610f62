//! Probes are applied, compared, brought back and removed.

use anyhow::Result;
use serde_json::Value;

use crate::scene::Scene;

#[test]
fn a_probe_goes_forth_and_back_with_reasons() -> Result<()> {
    let scene = Scene::new()?;
    assert_eq!(
        scene.succeed("apply -f count.yaml -m first"),
        "created count on mon0 (xdp native)\n"
    );
    let changed = std::fs::read_to_string(scene.folder.path().join("count.yaml"))?
        .replace("What came", "Packets");
    scene.write("count.yaml", &changed)?;
    let list = scene.succeed("apply -f count.yaml -m words -o json");
    let list: Value = serde_json::from_str(&list)?;
    assert_eq!(
        (&list[0]["outcome"], &list[0]["answer"]["revision"]),
        (&"replaced".into(), &2.into())
    );
    let table = scene.succeed("revisions count");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        (rows[1][0], rows[1][1], rows[1].last()),
        ("2", "runs", Some(&"words")),
        "{table}"
    );
    assert_eq!(
        (rows[2][0], rows[2].last()),
        ("1", Some(&"first")),
        "{table}"
    );
    let diff = scene.succeed("diff count 1 2");
    assert!(
        diff.contains("\n-    help: What came\n+    help: Packets\n"),
        "{diff}"
    );
    assert_eq!(
        scene.succeed("diff count"),
        diff,
        "the last step is the default"
    );
    assert_eq!(scene.run("diff count 1 9")?.code, 1);
    let back = scene.succeed("rollback count -m mistake");
    assert_eq!(
        back,
        "rolled back count to the revision before on mon0 (xdp native); it is revision 3\n"
    );
    let revisions: Value = serde_json::from_str(&scene.succeed("revisions count -o json"))?;
    assert_eq!(revisions["revisions"][2]["message"], "mistake");
    assert_eq!(
        scene.succeed("diff count 1 3"),
        "count revision 1 and count revision 3 are the same\n"
    );
    scene.succeed("rollback count 2");
    let revisions = scene.succeed("revisions count -o yaml");
    assert!(
        revisions.contains("message: back to revision 2"),
        "{revisions}"
    );
    let status: Value = serde_json::from_str(&scene.succeed("get count"))?;
    assert_eq!(status["config"]["ingress"]["metrics"][0]["help"], "Packets");
    Ok(())
}

#[test]
fn folders_are_applied_whole_and_probes_removed_by_name() -> Result<()> {
    let scene = Scene::new()?;
    let one = std::fs::read_to_string(scene.folder.path().join("count.yaml"))?;
    scene.write("other.yml", &one)?;
    let applied = scene.succeed("apply -f . --interface mon0 --interface mon1");
    assert_eq!(
        applied,
        "created count on mon0 (xdp native), mon1 (xdp native)\ncreated other on mon0 (xdp native), mon1 (xdp native)\n"
    );
    scene.write("third.json", "{\"interface\": 5}")?;
    scene.write("count.yaml", &one.replace("What came", "Packets"))?;
    let refused = scene.run("apply -f .")?;
    assert!(
        refused.code == 1 && refused.err.contains("third.json"),
        "{}",
        refused.err
    );
    assert_eq!(
        scene.daemon.json("/v1/probes/count")["revision"],
        1,
        "a mistake in the last file changes nothing"
    );
    let wide = scene.succeed("list -o wide");
    assert!(
        wide.contains("REVISION") && wide.contains("xdp native"),
        "{wide}"
    );
    let yaml = scene.succeed("list -o yaml");
    assert!(yaml.starts_with("probes:\n- name: count\n"), "{yaml}");
    let deleted = scene.run("delete count nope other")?;
    assert_eq!(
        (deleted.code, deleted.out.as_str()),
        (1, "deleted count\ndeleted other\n")
    );
    assert!(deleted.err.contains("nope: Not Found"), "{}", deleted.err);
    assert_eq!(scene.succeed("list"), "no probes\n");
    Ok(())
}
