//! Programs that do forbidden things are refused before they are loaded, with the line; others are
//! loaded. Each program of the corpus in `bpf/admission` is sent at each hook that it is for.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::bpf::variants::variants;
use twinprobe_tests::probes;
use twinprobe_tests::sample::{window, xdp_counter};
use twinprobe_tests::{Bystanders, Daemon, Topology};

const WRITES: &str = include_str!("../../bpf/admission/writes.bpf.c");
const READS: &str = include_str!("../../bpf/admission/reads.bpf.c");
const FORBIDDEN: &str = include_str!("../../bpf/admission/forbidden.bpf.c");
const TIMER: &str = include_str!("../../bpf/admission/timer.bpf.c");

/// A program of the corpus at one hook.
struct Case {
    name: &'static str,
    source: &'static str,
    hook: &'static str,
    /// True if the kernel refuses the program as well.
    is_refused_by_kernel: bool,
    /// The lines that the refusal names, from 1.
    lines: BTreeSet<u64>,
}

impl Case {
    /// Returns the cases of a source: from `#ifdef CASE_NAME // HOOKS` to `#endif` at the beginning
    /// of a line.
    fn all(source: &'static str) -> Vec<Self> {
        let mut cases = Vec::new();
        let mut open: Option<(&str, Vec<&str>, BTreeSet<u64>)> = None;
        for (index, line) in source.lines().enumerate() {
            match (
                line.strip_prefix("#ifdef CASE_")
                    .and_then(|rest| rest.split_once(" // ")),
                &mut open,
            ) {
                (Some((name, hooks)), None) => {
                    open = Some((name, hooks.split(' ').collect(), BTreeSet::new()));
                }
                (None, Some((_, _, lines))) if line.ends_with("// refused") => {
                    lines.insert(index as u64 + 1);
                }
                (None, Some(_)) if line == "#endif" => {
                    let (name, mut hooks, lines) = open.take().expect("a case is open");
                    let is_refused_by_kernel = hooks.pop_if(|hook| *hook == "kernel").is_some();
                    cases.extend(hooks.into_iter().map(|hook| Self {
                        name,
                        source,
                        hook,
                        is_refused_by_kernel,
                        lines: lines.clone(),
                    }));
                }
                _ => (),
            }
        }
        assert!(open.is_none());
        cases
    }

    fn config(&self, verdict: &str) -> Value {
        let mut defines = json!({ format!("CASE_{}", self.name): "1" });
        if self.hook == "tc" {
            defines["TC"] = json!("1");
        }
        let direction = json!({ "hook": self.hook, "verdict": verdict, "source": self.source, "defines": defines });
        json!({ "interface": "mon0", "ingress": direction })
    }

    fn what(&self) -> String {
        format!("{} at {}", self.name, self.hook)
    }
}

struct Scene {
    daemon: Daemon,
    topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        Ok(Self { daemon, topology })
    }

    /// Fails unless the configuration is admitted, and loaded by the kernel.
    fn admitted(&self, what: &str, config: &Value) -> Result<()> {
        let answer = self.daemon.post("/v1/validate", config);
        ensure!(answer.status == 200, "{what}: {}", answer.text());
        Ok(())
    }

    /// Returns the findings about a configuration; fails unless all come from the admission.
    fn refused(&self, what: &str, config: &Value) -> Result<Vec<Value>> {
        let answer = self.daemon.post("/v1/validate", config);
        ensure!(answer.status == 422, "{what}: {}", answer.text());
        let findings = answer.json()["errors"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let of_admission = |finding: &Value| {
            finding["stage"] == "admission" && finding["field"] == "ingress.source"
        };
        ensure!(
            !findings.is_empty() && findings.iter().all(of_admission),
            "{what}: {findings:?}"
        );
        Ok(findings)
    }

    fn refused_for_its_lines(&self, case: &Case, verdict: &str) -> Result<()> {
        let findings = self.refused(&case.what(), &case.config(verdict))?;
        let lines: BTreeSet<u64> = findings
            .iter()
            .filter_map(|finding| finding["line"].as_u64())
            .collect();
        ensure!(
            case.lines.is_empty() || lines == case.lines,
            "{}: {findings:?}",
            case.what()
        );
        Ok(())
    }
}

/// Fails with the messages of all failures, so that one failure does not hide the others.
fn all(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Each of these programs changes packets. An observing one is refused, with each line that does
/// so; an enforcing one is loaded by the kernel.
#[test]
fn a_program_that_changes_packets_is_refused_with_its_lines() -> Result<()> {
    let scene = Scene::new()?;
    let cases = Case::all(WRITES);
    assert!(cases.len() > 50, "{}", cases.len());
    all(cases.iter().flat_map(|case| {
        assert!(!case.lines.is_empty(), "{}", case.what());
        let enforced = if case.is_refused_by_kernel {
            Ok(())
        } else {
            scene.admitted(&case.what(), &case.config("enforce"))
        };
        [scene.refused_for_its_lines(case, "observe"), enforced]
    }))
}

#[test]
fn a_program_that_only_reads_packets_is_admitted() -> Result<()> {
    let scene = Scene::new()?;
    let cases = Case::all(READS);
    assert!(cases.len() > 35, "{}", cases.len());
    let ready_made = probes::names()?.into_iter();
    let ready_made =
        ready_made.map(|name| scene.admitted(&name, &probes::configuration(&name, "mon0")?));
    all(cases
        .iter()
        .map(|case| scene.admitted(&case.what(), &case.config("observe")))
        .chain(ready_made))
}

#[test]
fn what_no_monitor_needs_is_refused_whatever_the_verdict() -> Result<()> {
    let scene = Scene::new()?;
    let cases = Case::all(FORBIDDEN);
    all(["observe", "enforce"].into_iter().flat_map(|verdict| {
        cases
            .iter()
            .map(|case| scene.refused_for_its_lines(case, verdict))
            .collect::<Vec<_>>()
    }))
}

/// A program that writes to the map behind a descriptor of the daemon is refused. This applies to
/// every descriptor, also for other probes' maps and for the epoch words.
#[test]
fn the_daemons_descriptors_are_out_of_reach() -> Result<()> {
    let scene = Scene::new()?;
    let bystanders = Bystanders::deploy(&scene.daemon, &scene.topology)?;
    let case = Case::all(FORBIDDEN)
        .into_iter()
        .find(|case| case.name == "descriptor_of_a_value");
    let case = case.context("the case is in the corpus")?;
    let open = scene.daemon.open_files();
    assert!(open > 20, "{open}");
    all((3..open + 5).map(|descriptor| {
        let mut config = case.config("enforce");
        config["ingress"]["defines"]["NUMBER"] = json!(descriptor.to_string());
        scene
            .refused(&format!("descriptor {descriptor}"), &config)
            .map(drop)
    }))?;
    bystanders.finish()
}

/// The daemon accepts only maps whose types and flags are in its lists.
#[test]
fn maps_that_no_monitor_needs_are_refused() -> Result<()> {
    let scene = Scene::new()?;
    let config = |kind: u32, flags: u32| {
        let source = format!(
            "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
             struct {{ __uint(type, {kind}); __uint(max_entries, 4); __uint(map_flags, {flags});\n\
             __type(key, __u32); __type(value, __u32); }} odd SEC(\".maps\");\n{}",
            xdp_counter("XDP_PASS")
        );
        json!({ "interface": "mon0", "ingress": { "source": source } })
    };
    scene.admitted("an ordinary map", &config(1, 1))?;
    // A table of programs is never made: its programs become functions, and calls through an empty
    // one do nothing.
    scene.admitted("a table without programs", &config(3, 0))?;
    // STACK_TRACE, CGROUP_ARRAY, DEVMAP, SOCKMAP, CPUMAP, XSKMAP, SOCKHASH, SK_STORAGE, STRUCT_OPS,
    // USER_RINGBUF, ARENA, and a type that there is not yet.
    for kind in [7, 8, 14, 15, 16, 17, 18, 24, 26, 31, 33, 200] {
        let findings = scene.refused(&format!("type {kind}"), &config(kind, 0))?;
        let message = findings[0]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("map odd") && message.contains(&kind.to_string()),
            "{message}"
        );
    }
    // The flags NUMA_NODE, STACK_BUILD_ID, CLONE, LINK, PATH_FD, VTYPE_BTF_OBJ_FD, TOKEN_FD, and a
    // flag that does not exist yet.
    for flag in [2, 5, 9, 13, 14, 15, 16, 31] {
        let findings = scene.refused(&format!("flag {flag}"), &config(1, 1 << flag))?;
        let message = findings[0]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("map odd") && message.contains(&format!("{:#x}", 1_u32 << flag)),
            "{message}"
        );
    }
    Ok(())
}

/// A timer of one twin would continue writing while the twin is read.
#[test]
fn timers_are_refused_in_twins_only() -> Result<()> {
    let scene = Scene::new()?;
    let config = |metric: Value| json!({ "interface": "mon0", "ingress": { "source": TIMER, "metrics": [metric] } });
    scene.admitted(
        "a live counter",
        &config(json!({ "name": "packets", "map": "packets" })),
    )?;
    let findings = scene.refused("a snapshot", &config(window("packets", "packets")))?;
    let lines = TIMER
        .lines()
        .enumerate()
        .filter(|(_, line)| line.ends_with("// refused"));
    let lines: Vec<u64> = lines.map(|(index, _)| index as u64 + 1).collect();
    let found: Vec<u64> = findings
        .iter()
        .filter_map(|finding| finding["line"].as_u64())
        .collect();
    assert_eq!(found, lines, "{findings:?}");
    Ok(())
}

/// All sources of the tests observe, except two sources of the generator of traffic.
#[test]
fn the_sources_of_the_tests_are_admitted_but_for_those_that_send() -> Result<()> {
    let scene = Scene::new()?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let mut results = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let name = path
            .file_name()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        let source = fs::read_to_string(&path)?;
        results.extend(variants(&name).into_iter().map(|(hook, defines)| {
            let what = format!("{name} at {hook} with {defines}");
            let direction = json!({ "hook": hook, "source": source, "defines": defines });
            let config = json!({ "interface": "mon0", "ingress": direction });
            if matches!(name.as_str(), "generator.bpf.c" | "egress.bpf.c") {
                scene.refused(&what, &config).map(drop)
            } else {
                scene.admitted(&what, &config)
            }
        }));
    }
    assert!(results.len() > 20, "{}", results.len());
    all(results)
}
