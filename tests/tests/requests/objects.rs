//! Objects that were compiled elsewhere: `twinprobe build` makes them, and a daemon without clang
//! runs them.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, binary};

const PROBE: &str = "/v1/probes/built";

fn build(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(binary()?)
        .arg("build")
        .args(arguments)
        .output()?)
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").to_owned()
}

/// Returns a configuration for both directions whose sources are in files, and writes these files.
fn sources(directory: &Path) -> Result<Value> {
    let tc = xdp_counter("VERDICT")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    std::fs::write(directory.join("in.bpf.c"), xdp_counter("VERDICT"))?;
    std::fs::write(directory.join("out.bpf.c"), tc)?;
    let direction = |file: &str, verdict: &str| {
        json!({
            "source_file": file, "defines": { "VERDICT": verdict }, "metrics": [window("packets", "packets")],
        })
    };
    Ok(json!({
        "interfaces": ["mon0", "mon1"],
        "shared_maps": ["packets"],
        "ingress": direction("in.bpf.c", "XDP_PASS"),
        "egress": direction("out.bpf.c", "0"),
    }))
}

#[test]
fn a_daemon_without_clang_runs_what_was_built_elsewhere() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let config = sources(directory)?;
    let [file, built] = ["built.yaml", "built.json"].map(|name| path(directory, name));
    std::fs::write(&file, yaml_serde::to_string(&config)?)?;
    let output = build(&["-f", &file, "-o", &built])?;
    ensure!(output.status.success(), "{output:?}");
    let built: Value = serde_json::from_slice(&std::fs::read(built)?)?;
    assert_eq!(
        (&built["name"], &built["interfaces"]),
        (&json!("built"), &config["interfaces"])
    );
    for direction in ["ingress", "egress"] {
        let fields: Vec<&String> = built[direction]
            .as_object()
            .context("a direction")?
            .keys()
            .collect();
        assert_eq!(fields, ["object", "metrics"]);
    }

    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let without = DaemonOptions::default().environment("TWINPROBE_CLANG", "/nonexistent/clang");
    let mut daemon = daemon.restart(libc::SIGTERM, &without)?;
    daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(503);
    daemon.post("/v1/validate", &built).expect(200);
    daemon.put(PROBE, &built).expect(201);
    let _forward = topology.forward_to_egress()?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let mut expect = |daemon: &Daemon, count: u64| -> Result<()> {
        generator.send(count)?;
        let document = daemon.json(&format!("{PROBE}/metrics"));
        let counted = ["ingress", "egress"].map(|direction| total(&document, direction, "packets"));
        ensure!(
            counted == [2 * count; 2],
            "{counted:?} of {count} packets in and out"
        );
        Ok(())
    };
    expect(&daemon, 100)?;
    // The next daemon adopts the probe, and deploys it anew if its pins are lost.
    daemon = daemon.restart(libc::SIGKILL, &without)?;
    expect(&daemon, 10)?;
    let directories = daemon.kill()?;
    std::fs::remove_dir_all(directories.bpffs().join("probes"))?;
    let daemon = Daemon::start_in(topology.monitor(), &without, directories)?;
    expect(&daemon, 3)?;
    let status = daemon.json(PROBE);
    assert_eq!(
        (&status["state"], &status["config"]),
        (&json!("running"), &built)
    );
    assert_eq!(
        daemon.json("/v1/probes")["probes"][0]["config"]["ingress"].get("object"),
        None
    );
    daemon.put(PROBE, &built).expect(200);
    assert_eq!(daemon.json(PROBE)["revision"], 1, "it runs already");
    daemon.delete(PROBE).expect(204);
    drop(bystanders);
    Ok(())
}

#[test]
fn build_names_what_does_not_compile_and_writes_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let [file, source, built] =
        ["probe.json", "probe.c", "built.json"].map(|name| path(directory, name));
    // A configuration without sources, and with a source on the command line.
    std::fs::write(
        &file,
        json!({ "ingress": { "metrics": [window("packets", "packets")] } }).to_string(),
    )?;
    std::fs::write(&source, xdp_counter("XDP_PASS"))?;
    let output = build(&["-f", &file, "--ingress", &source])?;
    ensure!(output.status.success(), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout)?;
    assert!(
        printed["ingress"]["object"].is_string() && printed.get("interface").is_none(),
        "{printed}"
    );
    std::fs::write(&source, xdp_counter("XDP_NOTHING"))?;
    for (arguments, words) in [
        (
            &["-f", &file, "--ingress", &source, "-o", &built][..],
            "probe.c:15:9: error: use of undeclared",
        ),
        (
            &["-f", &file, "-o", &built],
            "ingress.source: error: the eBPF C source is missing",
        ),
        (
            &["-f", "/nonexistent", "-o", &built],
            "could not read /nonexistent",
        ),
    ] {
        let output = build(arguments)?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), message.contains(words)),
            (Some(1), true),
            "{message}"
        );
    }
    assert!(!Path::new(&built).exists());
    assert_eq!(build(&[])?.status.code(), Some(2));
    Ok(())
}

/// Overwrites a field of all section headers of an ELF file.
fn with_sections(elf: &[u8], field: usize, value: u64) -> Vec<u8> {
    let mut elf = elf.to_vec();
    let number = |at: usize, size: usize| -> usize {
        elf[at..at + size]
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    for section in 1..count {
        let at = start + section * size + field;
        elf[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    elf
}

#[test]
fn objects_are_held_against_the_rules_of_sources() -> Result<()> {
    let topology = Topology::new()?;
    let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", "examined");
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let directory = tempfile::tempdir()?;
    let source = path(directory.path(), "source.c");
    let config = path(directory.path(), "config.json");
    std::fs::write(&config, json!({ "ingress": {} }).to_string())?;
    let object = |text: &str| -> Result<Vec<u8>> {
        std::fs::write(&source, text)?;
        let output = build(&["-f", &config, "--ingress", &source])?;
        ensure!(output.status.success(), "{output:?}");
        let built: Value = serde_json::from_slice(&output.stdout)?;
        Ok(STANDARD.decode(built["ingress"]["object"].as_str().context("an object")?)?)
    };
    let good = object(&xdp_counter("XDP_PASS"))?;
    let with = |ingress: Value| json!({ "interface": "mon0", "ingress": ingress });
    let encoded = |elf: &[u8]| with(json!({ "object": STANDARD.encode(elf) }));
    daemon.post("/v1/validate", &encoded(&good)).expect(200);
    // Lines of base64, as tools write them.
    let lines: Vec<String> = STANDARD
        .encode(&good)
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    daemon
        .post("/v1/validate", &with(json!({ "object": lines.join("\n") })))
        .expect(200);

    let helpers = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";
    let writes = format!(
        "{helpers}SEC(\"xdp\") int see(struct xdp_md *ctx)\n{{\n\tchar *data = (void *)(long)ctx->data;\n\
         \tif (data + 1 > (char *)(long)ctx->data_end)\n\t\treturn XDP_PASS;\n\tdata[0] = 1;\n\treturn XDP_PASS;\n}}\n"
    );
    let functions = (0..1025)
        .map(|n| format!("int f{n}(void) {{ return {n}; }}\n"))
        .collect::<String>();
    let cut = &good[..good.len() / 2];
    let mut other_machine = good.clone();
    other_machine[0x12] = 62;
    let refused: [(Value, &str, &str); 14] = [
        (encoded(b"no ELF"), "load", "the object is not an ELF file"),
        (encoded(cut), "load", "the object is damaged"),
        (
            encoded(&other_machine),
            "load",
            "the object is not a 64-bit BPF object",
        ),
        (
            encoded(&with_sections(&good, 0x30, 1 << 40)),
            "load",
            "has an alignment of 1099511627776 bytes",
        ),
        (
            encoded(&with_sections(&good, 0x18, 0)),
            "load",
            "the object can't be read",
        ),
        (
            encoded(&with_sections(&good, 0x20, good.len() as u64 / 2)),
            "load",
            "",
        ),
        (
            encoded(&object(&writes)?),
            "admission",
            "the program writes to the packet",
        ),
        (
            encoded(&object(&format!("{}{functions}", xdp_counter("XDP_PASS")))?),
            "load",
            "has 1026 functions",
        ),
        (
            with(json!({ "hook": "tc", "object": STANDARD.encode(&good) })),
            "load",
            "the hook tc runs other programs",
        ),
        (
            with(json!({ "object": "!" })),
            "config",
            "the object is not base64",
        ),
        (
            with(json!({ "object": " \n" })),
            "config",
            "the object is empty",
        ),
        (
            with(json!({ "object": "A".repeat((1 << 20) + 4) })),
            "config",
            "the limit is 1048576",
        ),
        (
            with(json!({ "object": "QUJD", "source": "int x;" })),
            "config",
            "source and object exclude each other",
        ),
        (with(json!({})), "config", "give source, or object"),
    ];
    for (config, stage, words) in &refused {
        let answer = daemon.put(PROBE, config).expect(422).json();
        let error = &answer["errors"][0];
        let field = if words.contains("give source") {
            "ingress.source"
        } else {
            "ingress.object"
        };
        assert_eq!(
            (&error["stage"], &error["field"]),
            (&json!(stage), &json!(field)),
            "{answer}"
        );
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| message.contains(words)),
            "{words}: {answer}"
        );
    }
    let finding = daemon.put(PROBE, &refused[6].0).json()["errors"][0].clone();
    assert_eq!(
        finding["line"], 8,
        "objects of twinprobe build know their lines: {finding}"
    );
    let defines = with(json!({ "object": STANDARD.encode(&good), "defines": { "N": "1" } }));
    assert_eq!(
        daemon.put(PROBE, &defines).expect(422).json()["errors"][0]["field"],
        "ingress.defines"
    );
    // Random bytes in random places: each is refused or runs.
    let mut place = 1_usize;
    for _ in 0..40 {
        let mut damaged = good.clone();
        for _ in 0..4 {
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (place >> 33) % damaged.len();
            damaged[at] = place as u8;
        }
        let status = daemon.post("/v1/validate", &encoded(&damaged)).status;
        assert!([200, 422].contains(&status), "{status}");
    }
    bystanders.finish()?;
    // An object that crashes its parser only crashes a separate process.
    let daemon = daemon.restart(libc::SIGTERM, &dying)?;
    for _ in 0..3 {
        let answer = daemon.put(PROBE, &encoded(&good)).expect(422).json();
        let message = &answer["errors"][0]["message"];
        assert_eq!(
            message,
            "the object is damaged in a way that its parser does not survive; compile it again"
        );
    }
    daemon
        .put(PROBE, &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    daemon.delete(PROBE).expect(204);
    Ok(())
}
