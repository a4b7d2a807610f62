//! Commands that need no daemon, and `bench`.

use anyhow::Result;
use serde_json::Value;
use twinprobe_tests::probes;

use crate::scene::Scene;

#[test]
fn a_bench_touches_no_count() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    scene.generator.send(321)?;
    let capture = probes::directory().join("vlan/capture.pcap");
    let report = scene.succeed(&format!("bench count --pcap {} --runs 2 -o json", capture.display()));
    let report: Value = serde_json::from_str(&report)?;
    assert!(report["packets"].as_u64() > Some(10) && report["ns_per_packet"].as_f64().is_some(), "{report}");
    let document: Value = serde_json::from_str(&scene.succeed("metrics count -o json"))?;
    assert_eq!(document["ingress"]["seen"]["entries"][0]["value"]["packets"], 321, "{document}");
    // The same command under its two names.
    let replayed = scene.succeed(&format!("replay -f count.yaml {} -o yaml", capture.display()));
    assert_eq!(scene.succeed(&format!("test -f count.yaml {} -o yaml", capture.display())), replayed);
    Ok(())
}

#[test]
fn the_doctor_completions_and_man_pages_name_every_command() -> Result<()> {
    let scene = Scene::new()?;
    let checks: Value = serde_json::from_str(&scene.succeed("doctor -o json"))?;
    let verdict = |name: &str| {
        let found = checks.as_array().into_iter().flatten().find(|check| check["name"] == name);
        found.map(|check| check["verdict"].clone()).unwrap_or_default()
    };
    for name in ["privileges", "maps", "daemon", "bpf file system"] {
        assert_eq!(verdict(name), "ok", "{name}: {checks}");
    }
    let shells = ["bash", "zsh", "fish"].map(|shell| scene.succeed(&format!("completions {shell}")));
    scene.succeed("man pages");
    for command in ["apply", "serve", "top", "watch", "doctor", "rollback"] {
        assert!(shells.iter().all(|text| text.contains(command)), "{command}");
        assert!(scene.folder.path().join(format!("pages/twinprobe-{command}.1")).is_file(), "{command}");
    }
    assert!(!scene.folder.path().join("pages/twinprobe-examine.1").exists(), "what is hidden has no page");
    let quiet = scene.run("--log-level nonsense=x=y list")?;
    assert_eq!(quiet.code, 2, "{}", quiet.err);
    Ok(())
}
