//! `propose`: configurations for programs of others.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::scene::Scene;

/// The programs that only their author can complete, and the words of the refusal.
const INCOMPLETE: [(&str, &str); 8] = [
    ("angled", "copy it beside the source"),
    ("core-two", "choose one by the field entry"),
    ("newer", "copy it beside the source"),
    ("own-types", "copy it beside the source"),
    ("shared", "copy it to"),
    ("sizes", "max_entries"),
    ("tutorial", "choose one by the field entry"),
    ("two-in-section", "bpf_xdp_metadata_rx_hash"),
];

/// Proposes a configuration for a program, deploys it and reads its metrics. Returns the proposal.
fn deployed(scene: &Scene, program: &str, options: &str) -> Result<String> {
    let text = scene.succeed(&format!("propose {program} --interface mon0{options}"));
    scene.write("proposed.yaml", &text)?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("name: "))
        .context("a name")?;
    scene.succeed("apply -f proposed.yaml");
    let document: Value = serde_json::from_str(&scene.succeed(&format!("metrics {name} -o json")))?;
    assert_eq!(document["probe"], name, "{document}");
    scene.succeed(&format!("delete {name}"));
    Ok(text)
}

#[test]
fn every_program_of_others_gets_a_configuration_that_runs() -> Result<()> {
    let scene = Scene::new()?;
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests");
    let mut proposed = 0;
    for entry in std::fs::read_dir(&guests)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .context("a name")?
            .to_owned();
        let Some(stem) = name
            .strip_suffix(".bpf.c")
            .or_else(|| name.strip_suffix(".o"))
        else {
            continue;
        };
        let incomplete = INCOMPLETE
            .iter()
            .find(|(incomplete, _)| *incomplete == stem);
        if stem.starts_with("refused-") || incomplete.is_some() {
            let outcome = scene.run(&format!("propose {} --interface mon0", path.display()))?;
            let words = incomplete.map_or("error", |(_, words)| words);
            assert_eq!(
                (outcome.code, outcome.out.as_str()),
                (1, ""),
                "{stem}: {}",
                outcome.err
            );
            assert!(outcome.err.contains(words), "{stem}: {}", outcome.err);
            continue;
        }
        deployed(&scene, &path.display().to_string(), "")?;
        proposed += 1;
    }
    assert!(proposed > 20, "{proposed} programs");
    Ok(())
}

#[test]
fn maps_become_metrics_by_their_use() -> Result<()> {
    let mut scene = Scene::new()?;
    let map = |name: &str, kind: &str| {
        format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_{kind}); __type(key, __u32); __type(value, __u64); __uint(max_entries, 8); }} {name} SEC(\".maps\");\n"
        )
    };
    let program = |section: &str, name: &str, context: &str, body: &str| {
        format!("SEC(\"{section}\") int {name}(struct {context} *ctx) {{ {body} return 0; }}\n")
    };
    let use_all = "__u32 key = 1; __u64 one = 1, *found = bpf_map_lookup_elem(&totals, &key);
        if (found) __sync_fetch_and_add(found, 1);
        bpf_map_update_elem(&flows, &key, &one, BPF_ANY);
        bpf_map_update_elem(&open, &key, &one, BPF_ANY); bpf_map_delete_elem(&open, &key);
        if (bpf_map_lookup_elem(&listed, &key)) seen++;";
    let text = [
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n__u64 seen; const volatile int limit;\n"
            .to_owned(),
        map("totals", "ARRAY"),
        map("flows", "LRU_HASH"),
        map("open", "HASH"),
        map("listed", "HASH"),
        map("idle", "HASH"),
        "struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } events SEC(\".maps\");\n"
            .to_owned(),
        program("xdp", "in", "xdp_md", &format!("{use_all} bpf_ringbuf_output(&events, &key, 4, 0);")),
        program("tc/egress", "out", "__sk_buff", "__u32 key = 2; bpf_map_delete_elem(&open, &key);"),
    ];
    scene.write("both.c", &text.concat())?;
    let proposal = deployed(&scene, "both.c", "")?;
    for line in [
        "fill:\n  listed: []  # hash\n",
        "ingress:\n  hook: xdp\n  source_file: both.c\n",
        "{ name: totals, map: totals, help: \"totals of both\", snapshot: true, init: true }  # array of 8 entries\n",
        "{ name: flows, map: flows, help: \"flows of both\", snapshot: true, init: true }",
        "{ name: open, map: open, help: \"open of both\" }",
        "{ name: events, map: events, help: \"events of both\" }",
        "{ name: seen, map: \".bss:seen\", help: \"seen of both\", snapshot: true, init: true }",
        "egress:\n  hook: tc\n  source_file: both.c\n",
    ] {
        assert!(proposal.contains(line), "{line}: {proposal}");
    }
    assert!(
        !proposal.contains("idle") && !proposal.contains("limit"),
        "{proposal}"
    );
    // With `--hook tc`, the proposal has only the direction at TC.
    let only = deployed(&scene, "both.c", " --hook tc")?;
    assert!(
        !only.contains("ingress:") && only.contains("egress:"),
        "{only}"
    );
    // The probe has counted all packets.
    scene.write("proposed.yaml", &proposal)?;
    scene.succeed("apply -f proposed.yaml");
    scene.generator.send(25)?;
    let document: Value = serde_json::from_str(&scene.succeed("metrics both -o json"))?;
    assert_eq!(
        document["ingress"]["totals"]["entries"][1]["value"], 25,
        "{document}"
    );
    Ok(())
}

#[test]
fn a_refusal_has_the_line_of_the_program() -> Result<()> {
    let scene = Scene::new()?;
    let text = crate::scene::SOURCE.replace("/* a place for a mistake */", "; nonsense;");
    scene.write("mistake.c", &text)?;
    let outcome = scene.run("propose mistake.c --interface mon0")?;
    assert_eq!((outcome.code, outcome.out.as_str()), (1, ""));
    assert!(
        outcome.err.contains("mistake.c:19:") && outcome.err.contains("nonsense"),
        "{}",
        outcome.err
    );
    let missing = scene.run("propose missing.c --interface mon0")?;
    assert!(
        missing.code == 1 && missing.err.contains("missing.c"),
        "{}",
        missing.err
    );
    let interface = scene.run("propose count.bpf.c --interface none0")?;
    assert!(
        interface.code == 1 && interface.err.contains("there is no interface none0"),
        "{}",
        interface.err
    );
    Ok(())
}
