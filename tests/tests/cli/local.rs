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
    let report = scene.succeed(&format!(
        "bench count --pcap {} --runs 2 -o json",
        capture.display()
    ));
    let report: Value = serde_json::from_str(&report)?;
    assert!(
        report["packets"].as_u64() > Some(10) && report["ns_per_packet"].as_f64().is_some(),
        "{report}"
    );
    let document: Value = serde_json::from_str(&scene.succeed("metrics count -o json"))?;
    assert_eq!(
        document["ingress"]["seen"]["entries"][0]["value"]["packets"], 321,
        "{document}"
    );
    // `test` and `replay` are two names of one command.
    let replayed = scene.succeed(&format!(
        "replay -f count.yaml {} -o yaml",
        capture.display()
    ));
    assert_eq!(
        scene.succeed(&format!("test -f count.yaml {} -o yaml", capture.display())),
        replayed
    );
    Ok(())
}

#[test]
fn the_doctor_completions_and_man_pages_name_every_command() -> Result<()> {
    let scene = Scene::new()?;
    let checks: Value = serde_json::from_str(&scene.succeed("doctor -o json"))?;
    let verdict = |name: &str| {
        let found = checks
            .as_array()
            .into_iter()
            .flatten()
            .find(|check| check["name"] == name);
        found
            .map(|check| check["verdict"].clone())
            .unwrap_or_default()
    };
    for name in ["privileges", "maps", "daemon", "bpf file system"] {
        assert_eq!(verdict(name), "ok", "{name}: {checks}");
    }
    let shells =
        ["bash", "zsh", "fish"].map(|shell| scene.succeed(&format!("completions {shell}")));
    scene.succeed("man pages");
    for command in ["apply", "serve", "top", "watch", "doctor", "rollback"] {
        assert!(
            shells.iter().all(|text| text.contains(command)),
            "{command}"
        );
        assert!(
            scene
                .folder
                .path()
                .join(format!("pages/twinprobe-{command}.1"))
                .is_file(),
            "{command}"
        );
    }
    assert!(
        !scene
            .folder
            .path()
            .join("pages/twinprobe-examine.1")
            .exists(),
        "what is hidden has no page"
    );
    let quiet = scene.run("--log-level nonsense=x=y list")?;
    assert_eq!(quiet.code, 2, "{}", quiet.err);
    Ok(())
}

#[test]
fn probes_of_the_library_are_explained_changed_and_tried_without_a_file() -> Result<()> {
    let scene = Scene::new()?;
    let about = scene.succeed("probes dns");
    for words in [
        "questions, answers",
        "dns_server",
        "nanoseconds_max (ns)",
        "4096",
        "trial cost",
        "2001:db8:1::53",
    ] {
        assert!(about.contains(words), "{words}: {about}");
    }
    let capture = probes::directory()
        .join("dns/capture.pcap")
        .display()
        .to_string();
    let egress = probes::directory()
        .join("dns/egress.pcap")
        .display()
        .to_string();
    let both = format!("test --probe dns {capture} --egress-capture {egress}");
    let document: Value = serde_json::from_str(&scene.succeed(&format!("{both} -o json")))?;
    let latency = &document["ingress"]["dns_latency_nanoseconds"];
    let [least, most] = ["p50", "p99"].map(|bound| latency[bound].as_u64().unwrap_or_default());
    assert!(0 < least && least <= most, "{latency}");
    assert_eq!(latency["ranges"][0]["from"], 1 << 18, "{latency}");
    let table = scene.succeed(&both);
    assert!(
        table.contains("262 us to 524 us     19  ████") && table.contains("\np50 524 us, p95 "),
        "{table}"
    );
    // The questions of the capture go to another port.
    let moved = scene.succeed(&format!(
        "test --probe dns --define PORT=5353 {capture} -o json"
    ));
    let moved: Value = serde_json::from_str(&moved)?;
    let kinds = moved["ingress"]["dns_questions_total"].to_string();
    assert!(
        document["ingress"]["dns_questions_total"]
            .to_string()
            .contains("\"SOA\""),
        "{document}"
    );
    assert!(!kinds.contains("\"SOA\""), "{kinds}");
    let bench = scene.succeed(&format!("bench --probe dns --pcap {capture} --runs 2"));
    assert!(
        bench.contains("BENCH COST/PACKET") && bench.contains("dns"),
        "{bench}"
    );
    scene.succeed("apply --probe dns --name dns-2 --interface mon0 --define PORT=5353 --interval 10s --expires 10m --set window.retain=7");
    let status: Value = serde_json::from_str(&scene.succeed("get dns-2"))?;
    let config = &status["config"];
    assert_eq!(
        (&config["window"]["interval"], &config["window"]["retain"]),
        (&"10s".into(), &7.into())
    );
    assert_eq!(
        (&config["expires"], &config["ingress"]["defines"]["PORT"]),
        (&"10m".into(), &"5353".into())
    );
    for (wrong, words) in [
        ("--define PROT=1", "it has CLIENTS (default 0)"),
        (
            "--var nothing=1",
            "there is no variable nothing; there are none",
        ),
        (
            "--set window.retane=7",
            "unknown field `retane`, expected one of",
        ),
        (
            "--set ingress.metrics.dnss.agg=sum",
            "there are dns_questions_total",
        ),
    ] {
        let refused = scene.run(&format!("validate --probe dns --interface mon0 {wrong}"))?;
        assert!(
            refused.code == 1 && refused.err.contains(words),
            "{wrong}: {} {}",
            refused.code,
            refused.err
        );
    }
    let misplaced = scene.run("serve --token-file x")?;
    assert!(
        misplaced.code == 2 && misplaced.err.contains("does not talk to a daemon"),
        "{}",
        misplaced.err
    );
    Ok(())
}

#[test]
fn a_peek_takes_nothing_and_a_reading_that_finds_nothing_says_who_was_first() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    let sums = "interface: mon0\ningress:\n  source_file: count.bpf.c\n  metrics: [{ name: seen, map: seen, snapshot: true }]\n";
    scene.write("sums.yaml", sums)?;
    scene.succeed("apply -f sums.yaml");
    let packets = |scene: &Scene, of: &str| -> Result<Value> {
        let document: Value =
            serde_json::from_str(&scene.succeed(&format!("metrics {of} -o json")))?;
        Ok(document["ingress"]["seen"]["entries"][0]["value"]["packets"].clone())
    };
    scene.generator.send(200)?;
    for _ in 0..2 {
        assert_eq!(packets(&scene, "count --peek")?, 200);
        assert_eq!(packets(&scene, "sums --peek")?, 200);
    }
    assert_eq!(
        (packets(&scene, "count")?, packets(&scene, "sums")?),
        (200.into(), 200.into())
    );
    scene.generator.send(30)?;
    assert_eq!(
        (
            packets(&scene, "count --peek")?,
            packets(&scene, "sums --peek")?
        ),
        (30.into(), 230.into())
    );
    assert_eq!(packets(&scene, "count")?, 30);
    let nothing = scene.run("metrics count")?;
    assert!(nothing.out.contains("no entries"), "{}", nothing.out);
    let words = "nothing was counted since uid:0 read window 2";
    assert!(
        nothing.code == 0 && nothing.err.contains(words),
        "{}",
        nothing.err
    );
    let unknown = scene.run("metrics cuont")?;
    let words = "there is no probe named cuont (is it count?); `twinprobe list` lists them";
    assert!(
        unknown.code == 1 && unknown.err.contains(words),
        "{}",
        unknown.err
    );
    Ok(())
}
