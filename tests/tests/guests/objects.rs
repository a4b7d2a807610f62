//! Objects of plain compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::bpf::variants::variants;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology, probes};

use crate::scene::{
    at_xdp, clangs, compile, directory, of_object, source, stripped, without_types,
};

/// The programs that need no header of ours.
const PLAIN: [&str; 8] = [
    "legacy",
    "annotated",
    "sections",
    "both-directions",
    "tutorial",
    "tail-calls",
    "iterators",
    "core-two",
];

#[test]
fn objects_of_each_compiler_are_valid_stripped_or_not() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let clangs = clangs();
    ensure!(!clangs.is_empty(), "no clang is installed");
    for clang in &clangs {
        for name in PLAIN {
            let path = directory().join(format!("{name}.bpf.c"));
            for more in [&[][..], &["-mcpu=v3"], &["-fno-addrsig"]] {
                let elf = compile(clang, &path, more)?;
                for elf in [stripped(&elf)?, elf] {
                    let mut code = of_object(&elf);
                    match name {
                        "tutorial" => code["entry"] = json!("xdp_pass_func"),
                        "core-two" => code["entry"] = json!("second"),
                        _ => {}
                    }
                    let answer = daemon.post("/v1/validate", &at_xdp(&code, &[]));
                    ensure!(
                        answer.status == 200,
                        "{clang} {more:?}, {name}: {}",
                        answer.text()
                    );
                }
            }
        }
    }
    Ok(())
}

/// Each compiler except the newest gets one of this many sources.
const PART: usize = 3;

/// An instruction that clang compiles for `-mcpu=v3` only: an atomic OR.
const NEEDS_V3: &str = "flow-features.bpf.c";

/// A source that is compiled without the daemon.
struct Plain {
    path: PathBuf,
    /// `NAME=VALUE`.
    defines: Vec<String>,
    hook: String,
    metrics: Value,
    is_refused: bool,
}

/// The sources of `tests/bpf`, one variant of each, and those of the library with their metrics,
/// one direction of each.
fn plain() -> Result<Vec<Plain>> {
    let mut all = Vec::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let mut paths = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path
            .file_name()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        if !path.is_file() {
            continue;
        }
        let (hook, values) = variants(&name).into_iter().next().context("a variant")?;
        let values = values.as_object().into_iter().flatten();
        let defines =
            values.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
        // These programs send packets.
        let is_refused = matches!(name.as_str(), "generator.bpf.c" | "egress.bpf.c");
        let (defines, hook) = (defines.collect(), hook.to_owned());
        all.push(Plain {
            path,
            defines,
            hook,
            metrics: json!([]),
            is_refused,
        });
    }
    for name in probes::names()? {
        let config = probes::configuration(&name, "mon0")?;
        let (direction, macro_name) = match config.get("ingress") {
            Some(ingress) => (ingress, "TWINPROBE_INGRESS"),
            None => (&config["egress"], "TWINPROBE_EGRESS"),
        };
        let hook = direction["hook"].as_str().unwrap_or("xdp").to_owned();
        let defines = vec![
            format!("TWINPROBE_{}=1", hook.to_uppercase()),
            format!("{macro_name}=1"),
        ];
        // Without windows there are no twins, and the kernel verifies each program once.
        let metrics = direction["metrics"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|metric| {
                let mut metric = metric.clone();
                for field in ["snapshot", "init", "merge", "sum_expires"] {
                    metric.as_object_mut().map(|metric| metric.remove(field));
                }
                metric
            });
        let (path, metrics) = (probes::source_path(&name), metrics.collect());
        all.push(Plain {
            path,
            defines,
            hook,
            metrics,
            is_refused: false,
        });
    }
    Ok(all)
}

impl Plain {
    fn validate(&self, daemon: &Daemon, clang: &str) -> Result<()> {
        let headers = concat!(
            "-I",
            env!("CARGO_MANIFEST_DIR"),
            "/../crates/compiler/headers"
        );
        let defines: Vec<String> = self
            .defines
            .iter()
            .map(|define| format!("-D{define}"))
            .collect();
        let more: Vec<&str> = defines
            .iter()
            .map(String::as_str)
            .chain([headers])
            .collect();
        let mut object = compile(clang, &self.path, &more);
        if self.path.ends_with(NEEDS_V3) {
            let refused = object
                .err()
                .context("clang has an atomic OR now")?
                .to_string();
            ensure!(
                refused
                    .to_lowercase()
                    .contains("unsupported atomic operation"),
                "{refused}"
            );
            object = compile(clang, &self.path, &[&more[..], &["-mcpu=v3"]].concat());
        }
        let mut code = of_object(&object?);
        code["hook"] = json!(self.hook);
        code["metrics"] = self.metrics.clone();
        let is_egress = self
            .defines
            .iter()
            .any(|define| define == "TWINPROBE_EGRESS=1");
        let direction = if is_egress { "egress" } else { "ingress" };
        let answer = daemon.post(
            "/v1/validate",
            &json!({ "interface": "mon0", direction: code }),
        );
        let fits = match self.is_refused {
            true => answer.status == 422 && answer.json()["errors"][0]["stage"] == "admission",
            false => answer.status == 200,
        };
        ensure!(
            fits,
            "{clang}, {}: {} {}",
            self.path.display(),
            answer.status,
            answer.text()
        );
        Ok(())
    }
}

/// A client that compiles a source with clang itself gets an object that is as good as the daemon's
/// own.
#[test]
fn the_sources_of_tests_and_library_are_valid_compiled_the_plain_way_by_each_compiler() -> Result<()>
{
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let (clangs, plain) = (clangs(), plain()?);
    ensure!(
        !clangs.is_empty() && plain.len() > 50,
        "{} sources, {clangs:?}",
        plain.len()
    );
    // The newest compiler, which is the first, gets all sources, and each other one gets a part.
    let by = |plain| {
        clangs
            .iter()
            .enumerate()
            .map(move |(age, clang)| (plain, age, clang))
    };
    let jobs = plain.iter().enumerate().flat_map(|(number, plain)| {
        by(plain).filter(move |(_, age, _)| *age == 0 || number % PART == age % PART)
    });
    let jobs: Vec<(&Plain, &String)> = jobs.map(|(plain, _, clang)| (plain, clang)).collect();
    let failures: Vec<String> = thread::scope(|scope| {
        let halves = jobs.chunks(jobs.len().div_ceil(2)).map(|half| {
            scope.spawn(|| {
                let results = half
                    .iter()
                    .map(|(plain, clang)| plain.validate(&daemon, clang));
                results
                    .filter_map(Result::err)
                    .map(|error| format!("{error:#}"))
                    .collect::<Vec<_>>()
            })
        });
        let halves: Vec<_> = halves.collect();
        halves
            .into_iter()
            .flat_map(|half| half.join().expect("no panic"))
            .collect()
    });
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// `BPF_ANNOTATE_KV_PAIR` of early libbpf and iproute2. An annotation that does not fit its map has
/// no effect.
#[test]
fn the_annotation_of_a_map_without_types_tells_its_types() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for clang in clangs() {
        let elf = compile(&clang, &directory().join("annotated.bpf.c"), &[])?;
        for elf in [stripped(&elf)?, elf] {
            daemon
                .put(
                    "/v1/probes/p",
                    &at_xdp(&of_object(&elf), &["sizes", "others"]),
                )
                .expect(201);
            let mut generator =
                Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
            generator.send(10)?;
            let document = daemon.json("/v1/probes/p/metrics");
            let entry = &document["ingress"]["sizes"]["entries"][0];
            assert_eq!(
                entry["key"],
                json!({ "length": 60, "queue": 0 }),
                "{clang}: {document}"
            );
            assert_eq!(
                entry["value"],
                json!({ "packets": 10, "bytes": 600 }),
                "{clang}: {document}"
            );
            let entry = &document["ingress"]["others"]["entries"][0];
            assert_eq!(
                entry["key"],
                json!({ "length": 60, "queue": 0 }),
                "{clang}: {document}"
            );
            assert_eq!(entry["value"], json!("0x01000000"), "{clang}: {document}");
            daemon.delete("/v1/probes/p").expect(204);
        }
    }
    Ok(())
}

/// An object that Rust has made: maps without types in the section `maps`, both programs in one
/// file, functions of Rust's library. By default aya's tools make objects without type information.
#[test]
fn an_object_of_aya_runs_with_types_and_without() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let elf = fs::read(directory().join("aya.o"))?;
    let maps = ["PACKETS", "PROTOCOLS", "BYTES"];
    for (elf, has_types) in [(without_types(&elf)?, false), (elf, true)] {
        for (hook, entry, other) in [("xdp", "at_xdp", "at_tc"), ("tc", "at_tc", "at_xdp")] {
            let mut code = of_object(&elf);
            code["hook"] = json!(hook);
            daemon
                .put("/v1/probes/aya", &at_xdp(&code, &maps))
                .expect(201);
            let program = &daemon.json("/v1/probes/aya")["programs"]["ingress"];
            assert_eq!(
                (&program["entry"], &program["left_out"]),
                (&json!(entry), &json!([other]))
            );
            generator.send(10)?;
            let document = daemon.json("/v1/probes/aya/metrics");
            let entry = |map: &str| document["ingress"][map]["entries"][0].clone();
            let ten = "0x0a00000000000000";
            assert_eq!(entry("PACKETS")["value"], ten, "{document}");
            assert_eq!(
                (&entry("PROTOCOLS")["key"], &entry("PROTOCOLS")["value"]),
                (&json!("0x0008"), &json!(ten))
            );
            assert!(
                entry("BYTES")["value"]
                    .to_string()
                    .contains("0x5802000000000000"),
                "{document}"
            );
            daemon.delete("/v1/probes/aya").expect(204);
        }
        if has_types {
            let mut code = of_object(&elf);
            code["variables"] = json!({ "LEAST": 61 });
            daemon
                .put(
                    "/v1/probes/aya",
                    &at_xdp(&code, &["PACKETS", ".rodata:LEAST"]),
                )
                .expect(201);
            generator.send(10)?;
            let document = daemon.json("/v1/probes/aya/metrics");
            let value = |map: &str| document["ingress"][map]["entries"][0]["value"].clone();
            assert_eq!(
                (value("PACKETS"), value("LEAST")),
                (json!("0x0000000000000000"), json!(61))
            );
            daemon.delete("/v1/probes/aya").expect(204);
        }
    }
    Ok(())
}

/// A configuration gives maps the sizes that their loader would set. The client accepts an object
/// as a source, and leaves out what nothing reads.
#[test]
fn an_object_in_a_file_runs_with_the_sizes_of_the_configuration() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let elf = compile("clang", &directory().join("sizes.bpf.c"), &["-fno-addrsig"])?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("sizes.o"), &elf)?;
    let file = folder.path().join("sizes.json");
    let path = file.to_str().context("a path")?;
    let apply = |sizes: Value| -> Result<String> {
        let code = json!({ "source_file": "sizes.o", "max_entries": sizes });
        fs::write(&file, at_xdp(&code, &["lengths"]).to_string())?;
        let output = daemon.client(&["apply", "-f", path])?;
        Ok([output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat())
    };
    for (sizes, words) in [
        (
            json!({ "flows": 8 }),
            "map lengths has no number of entries, and gets 10240",
        ),
        (
            json!({ "lengths": 8 }),
            "map flows of ingress takes the most",
        ),
        (
            json!({ "lengths": 8, "flows": 8, "other": 8 }),
            "there is no map other; there are flows, lengths",
        ),
        (
            json!({ "lengths": 0, "flows": 8 }),
            "0 is not a number of entries",
        ),
    ] {
        let answer = apply(sizes)?;
        ensure!(answer.contains(words), "{words}: {answer}");
    }
    let answer = apply(json!({ "lengths": 8, "flows": 8 }))?;
    ensure!(answer.contains("replaced sizes"), "{answer}");
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let document = daemon.json("/v1/probes/sizes/metrics");
    let entry = &document["ingress"]["lengths"]["entries"][0];
    assert_eq!(
        (&entry["key"], &entry["value"]),
        (&json!(60), &json!(10)),
        "{document}"
    );
    let config = &daemon.json("/v1/probes/sizes")["config"]["ingress"];
    let sent = config["object"].as_str().map_or(0, str::len);
    ensure!(
        sent > 0 && sent < elf.len() && config["max_entries"]["lengths"] == 8,
        "{config}"
    );
    Ok(())
}

/// Loaders of some projects set the sizes of arrays, of rings and of maps in maps, too.
#[test]
fn maps_without_sizes_get_usual_ones() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = at_xdp(
        &json!({ "source": source("without-sizes")? }),
        &["packets", "lengths"],
    );
    let answer = daemon
        .put("/v1/probes/without-sizes", &config)
        .expect(201)
        .json();
    for words in [
        "map packets has no number of entries, and gets 1024",
        "map lengths has no number of entries, and gets 262144",
        "map limits has no number of entries, and gets 1024",
        "the maps in limits have no number of entries, and get 1024",
    ] {
        ensure!(
            answer["warnings"].to_string().contains(words),
            "{words}: {answer}"
        );
    }
    // A usual size counts for the limits like one that the source gives.
    let large = source("without-sizes")?.replacen(
        "__type(value, __u64)",
        "__type(value, __u64[1 << 20])",
        1,
    );
    let answer = daemon
        .post(
            "/v1/validate",
            &at_xdp(&json!({ "source": large }), &["packets"]),
        )
        .expect(422)
        .json();
    ensure!(
        answer
            .to_string()
            .contains("map packets of ingress takes the most"),
        "{answer}"
    );
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let document = daemon.json("/v1/probes/without-sizes/metrics");
    assert_eq!(
        document["ingress"]["packets"]["entries"][0]["value"], 10,
        "{document}"
    );
    Ok(())
}

/// gcc leaves sections for variables even without variables, and the kernel does not know all its
/// types.
#[test]
fn an_object_of_gcc_runs() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let code = of_object(&fs::read(directory().join("gcc.o"))?);
    daemon
        .put("/v1/probes/gcc", &at_xdp(&code, &["lengths"]))
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let document = daemon.json("/v1/probes/gcc/metrics");
    let entries = &document["ingress"]["lengths"]["entries"];
    assert_eq!(
        (&entries[0]["value"], &entries[1]["value"]),
        (&json!(0), &json!(600)),
        "{document}"
    );
    Ok(())
}

#[test]
fn an_object_without_types_runs_and_its_maps_are_in_hex() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let elf = compile("clang", &directory().join("legacy.bpf.c"), &["-g0"])?;
    daemon
        .put("/v1/probes/p", &at_xdp(&of_object(&elf), &["packets"]))
        .expect(201);
    assert_eq!(
        daemon.json("/v1/probes/p")["programs"]["ingress"]["entry"],
        "count"
    );
    assert!(
        daemon
            .json("/v1/probes/p/metrics")
            .to_string()
            .contains("0x")
    );
    Ok(())
}

/// A refusal of an object names the file and the line that the refused code was compiled from.
#[test]
fn refusals_of_objects_have_the_line_of_their_source() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let path = directory().join("two-in-section.bpf.c");
    let mut code = of_object(&compile("clang", &path, &[])?);
    code["entry"] = json!("forward");
    let text = fs::read_to_string(&path)?;
    let line = text
        .lines()
        .position(|line| line.contains("if (bpf_xdp_metadata_rx_hash"));
    let place = format!(
        "two-in-section.bpf.c:{}: the source uses",
        line.context("a call")? + 1
    );
    let answer = daemon.post("/v1/validate", &at_xdp(&code, &[]));
    ensure!(
        answer.status == 422 && answer.text().contains(&place),
        "{place}: {}",
        answer.text()
    );
    Ok(())
}

#[test]
fn what_is_no_object_for_this_machine_is_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let path = directory().join("sections.bpf.c");
    let good = compile("clang", &path, &[])?;
    let mut foreign = good.clone();
    foreign[18] = 62;
    for (elf, words) in [
        (
            compile("clang", &path, &["-target", "bpfeb"])?,
            "big-endian",
        ),
        (foreign, "not a 64-bit BPF object"),
        (
            compile("clang", &directory().join("tutorial.bpf.c"), &["-g0"])?,
            "-g",
        ),
        (good[..100].to_vec(), "damaged"),
    ] {
        let mut code = of_object(&elf);
        if words == "-g" {
            code["entry"] = json!("xdp_pass_func");
        }
        let answer = daemon.post("/v1/validate", &at_xdp(&code, &[]));
        ensure!(
            answer.status == 422 && answer.text().contains(words),
            "{words}: {}",
            answer.text()
        );
    }
    Ok(())
}
