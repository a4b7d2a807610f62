//! Benchmark of the dispatcher: the nanoseconds per packet that it adds to a probe's program.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::programs::Program;
use twinprobe_tests::traffic::Frame;
use twinprobe_tests::{Daemon, Topology, report, sample, scaled};

const TARGET: f64 = 2.0;
const CHAINS: [usize; 4] = [1, 2, 4, 16];
const REPEAT: u32 = 1_000_000;
/// The CPU that runs the programs, if it exists: interrupts tend to go to the first one.
const CPU: usize = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// A program that only returns.
    Empty,
    /// A program that counts in an ARRAY, which is a metric with twins.
    Counter,
}

pub fn run() -> Result<()> {
    report::section(
        "Dispatcher",
        &format!(
            "`BPF_PROG_TEST_RUN` on one 60-byte frame, {REPEAT} runs at a time, of the dispatcher that the daemon has \
             attached and of the first probe's own active program, in alternating order; twins are flipped between \
             rounds. Nanoseconds of the thread's processor time per run, which include the loop around the program. \
             `added` is the difference within each round; `per probe` is that of chains by the number of probes, \
             and so includes the programs of all probes but one. Medians with quartiles.",
        ),
    );
    report::table(&[
        "hook",
        "verdict",
        "program",
        "probes",
        "rounds",
        "bare, ns",
        "dispatcher, ns",
        "added, ns",
        "per probe, ns",
        "<= 2 ns",
    ]);
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for hook in ["xdp", "tc"] {
        for verdict in ["observe", "enforce"] {
            for body in [Body::Empty, Body::Counter] {
                chain(&daemon, hook, verdict, body)?;
            }
        }
    }
    Ok(())
}

/// Deploys one probe after the other and measures at the chain lengths in [`CHAINS`].
fn chain(daemon: &Daemon, hook: &str, verdict: &str, body: Body) -> Result<()> {
    let config = config(hook, verdict, body);
    let longest = CHAINS[CHAINS.len() - 1];
    for length in 1..=longest {
        daemon.put(&path(length), &config).expect(201);
        if CHAINS.contains(&length) {
            measure(daemon, &pins(daemon, hook)?, hook, verdict, body, length)?;
        }
    }
    for length in 1..=longest {
        daemon.delete(&path(length)).expect(204);
    }
    Ok(())
}

fn measure(daemon: &Daemon, pins: &Path, hook: &str, verdict: &str, body: Body, length: usize) -> Result<()> {
    let dispatcher = Program::behind_link(&entry(pins, |name| name.starts_with("link_"))?)?;
    let twins = [Program::in_slot(&pins.join("slots"), 0)?, Program::in_slot(&pins.join("slots"), 1)?];
    let rounds = scaled(21, 210);
    let (mut bare, mut dispatched, mut added) = (Sample::default(), Sample::default(), Sample::default());
    // The first active twin is that of epoch 1.
    let mut epoch = 1;
    for round in 0..rounds {
        let program = &twins[(epoch & 1) as usize];
        let order = if round % 2 == 0 { [program, &dispatcher] } else { [&dispatcher, program] };
        let mut times = run_on_one_cpu(order, hook)?;
        if round % 2 != 0 {
            times.reverse();
        }
        bare.add(times[0]);
        dispatched.add(times[1]);
        added.add(times[1] - times[0]);
        if body == Body::Counter {
            let document = daemon.json(&format!("{}/metrics", path(1)));
            let counted = sample::total(&document, "ingress", "packets");
            ensure!(counted >= u64::from(REPEAT), "the dispatcher did not run the probe: {counted}");
            epoch = 1 + document["window"]["seq"].as_u64().context("a window has a number")?;
        }
    }
    report::row(&[
        hook.to_owned(),
        verdict.to_owned(),
        match body {
            Body::Empty => "empty",
            Body::Counter => "counter, twins",
        }
        .to_owned(),
        length.to_string(),
        rounds.to_string(),
        bare.summary(2),
        dispatched.summary(2),
        added.summary(2),
        if length == 1 { String::new() } else { format!("{:.2}", added.median() / length as f64) },
        if length == 1 { report::verdict(added.median() <= TARGET).to_owned() } else { String::new() },
    ]);
    Ok(())
}

/// Runs the programs one after the other. Returns the nanoseconds per run of each.
fn run_on_one_cpu(programs: [&Program; 2], hook: &str) -> Result<[f64; 2]> {
    let pass = if hook == "xdp" { 2 } else { -1 };
    thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            if thread::available_parallelism()?.get() > CPU {
                pin_to_cpu(CPU).context("move to a CPU")?;
            }
            let mut times = [0.0; 2];
            for (program, time) in programs.into_iter().zip(&mut times) {
                let runs = program.run(Frame::default().bytes(), REPEAT)?;
                ensure!(runs.verdict == pass, "the verdict was {}, not {pass}", runs.verdict);
                *time = runs.time.as_nanos() as f64 / f64::from(REPEAT);
            }
            Ok(times)
        });
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns the directory of pins of the dispatcher at mon0's ingress.
fn pins(daemon: &Daemon, hook: &str) -> Result<PathBuf> {
    let ending = if hook == "xdp" { "_xdp_last" } else { "_tc-ingress_last" };
    entry(&daemon.directories().bpffs().join("hooks"), |name| name.ends_with(ending))
}

/// Returns the first entry of a directory whose name is `wanted`.
fn entry(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let found = entries.flatten().find(|entry| wanted(&entry.file_name().to_string_lossy()));
    Ok(found.with_context(|| format!("not found in {}", directory.display()))?.path())
}

fn path(number: usize) -> String {
    format!("/v1/probes/probe{number}")
}

fn config(hook: &str, verdict: &str, body: Body) -> Value {
    let (section, context, pass) =
        if hook == "xdp" { ("xdp", "xdp_md", "2") } else { ("tc", "__sk_buff", "-1") };
    let (map, count, metrics) = match body {
        Body::Empty => ("", "", json!([])),
        Body::Counter => (
            "struct {\n\
             \t__uint(type, BPF_MAP_TYPE_ARRAY);\n\
             \t__uint(max_entries, 1);\n\
             \t__type(key, __u32);\n\
             \t__type(value, __u64);\n\
             } packets SEC(\".maps\");\n",
            "\t__u32 key = 0;\n\
             \t__u64 *value = bpf_map_lookup_elem(&packets, &key);\n\
             \tif (value)\n\
             \t\t++*value;\n",
            json!([sample::window("packets", "packets")]),
        ),
    };
    let source = format!(
        "#include <linux/bpf.h>\n\
         #include <bpf/bpf_helpers.h>\n\
         {map}\
         SEC(\"{section}\") int probe(struct {context} *ctx)\n\
         {{\n\
         {count}\
         \treturn {pass};\n\
         }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    json!({
        "interface": "mon0",
        "ingress": { "hook": hook, "verdict": verdict, "source": source, "metrics": metrics }
    })
}
