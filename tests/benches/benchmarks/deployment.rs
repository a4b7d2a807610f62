//! Benchmark of deployment: the time of a PUT with twins against that of the same probe without twins.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::measure::{ProcessorTime, Sample};
use twinprobe_tests::{Daemon, Topology, report, sample, scaled};

use crate::nameless;

const TARGET: f64 = 1.15;
const MAPS: usize = 100;
/// The number of maps that the program uses; the kernel's limit is 64 (`MAX_USED_MAPS`).
const USED_MAPS: usize = 60;
const PROBE: &str = "/v1/probes/probe";

pub fn run() -> Result<()> {
    report::section(
        "Twin deployment",
        "PUT over the Unix socket to a daemon without other probes, until the answer: compile, load, attach, store. \
         Each source is new to the daemon. Pairs of the probe with `snapshot` and without, in alternating order, with \
         a DELETE (not timed) after each. Medians with quartiles; the ratio is that of each pair. `clang` is the mean \
         processor time of the daemon's children per PUT, and `daemon` that of its own threads. The last two columns \
         are a `POST /v1/validate` of the same two (compile and load, no attaching).",
    );
    report::table(&[
        "probe",
        "pairs",
        "single, ms",
        "twins, ms",
        "ratio",
        "<= 1.15",
        "clang, ms: single",
        "twins",
        "daemon, ms: single",
        "twins",
        "validate, ms: single",
        "twins",
    ]);
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for (name, config) in [
        ("packet-counter (2 directions)", nameless("packet-counter")?),
        ("flow-features (15 features)", nameless("flow-features")?),
        ("100 maps, 60 of them updated", many_maps()),
    ] {
        compare(&daemon, name, &config)?;
    }
    Ok(())
}

/// The measured costs of one kind of deployment.
#[derive(Default)]
struct Costs {
    put: Sample,
    validate: Sample,
    clang: f64,
    daemon: f64,
}

fn compare(daemon: &Daemon, name: &str, config: &Value) -> Result<()> {
    let configs = [with_snapshot(config, false), with_snapshot(config, true)];
    for config in &configs {
        // The first deployment includes work that the daemon does only once.
        deploy(daemon, config, &mut Costs::default())?;
    }
    let (mut single, mut twins, mut ratio) = (Costs::default(), Costs::default(), Sample::default());
    let pairs = scaled(60, 600);
    for pair in 0..pairs {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut times = [0.0; 2];
        for way in order {
            let costs = if way == 0 { &mut single } else { &mut twins };
            times[way] = deploy(daemon, &configs[way], costs)?;
        }
        ratio.add(times[1] / times[0]);
    }
    for (config, costs) in configs.iter().zip([&mut single, &mut twins]) {
        for _ in 0..pairs.div_ceil(4) {
            let (document, started) = (unique(config), Instant::now());
            daemon.post("/v1/validate", &document).expect(200);
            costs.validate.add(milliseconds(started.elapsed()));
        }
    }
    let mean = |seconds: f64| format!("{:.1}", 1000.0 * seconds / pairs as f64);
    report::row(&[
        name.to_owned(),
        pairs.to_string(),
        single.put.summary(1),
        twins.put.summary(1),
        ratio.summary(3),
        report::verdict(ratio.median() <= TARGET).to_owned(),
        mean(single.clang),
        mean(twins.clang),
        mean(single.daemon),
        mean(twins.daemon),
        format!("{:.1}", single.validate.median()),
        format!("{:.1}", twins.validate.median()),
    ]);
    Ok(())
}

/// Puts and deletes a probe. Returns the milliseconds of the PUT.
fn deploy(daemon: &Daemon, config: &Value, costs: &mut Costs) -> Result<f64> {
    let document = unique(config);
    let before = ProcessorTime::of(daemon.pid())?;
    let started = Instant::now();
    let response = daemon.put(PROBE, &document);
    let time = milliseconds(started.elapsed());
    let after = ProcessorTime::of(daemon.pid())?;
    response.expect(201);
    daemon.delete(PROBE).expect(204);
    costs.put.add(time);
    costs.clang += after.children - before.children;
    costs.daemon += after.own - before.own;
    Ok(time)
}

/// Returns the configuration with new sources, so that no cache of compiled objects helps.
fn unique(config: &Value) -> Value {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let mut document = config.clone();
    for direction in ["ingress", "egress"] {
        if let Some(Value::String(source)) = document.get_mut(direction).and_then(|d| d.get_mut("source")) {
            let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = write!(source, "\n// {n}\n");
        }
    }
    document
}

fn with_snapshot(config: &Value, snapshot: bool) -> Value {
    let mut document = config.clone();
    for direction in ["ingress", "egress"] {
        let metrics =
            document.get_mut(direction).and_then(|d| d.get_mut("metrics")).and_then(Value::as_array_mut);
        for metric in metrics.into_iter().flatten() {
            metric["snapshot"] = snapshot.into();
        }
    }
    document
}

/// Returns a probe with a hundred maps, each a metric, of which the program updates [`USED_MAPS`].
fn many_maps() -> Value {
    let mut source = String::from(
        "#include <linux/bpf.h>\n\
         #include <bpf/bpf_helpers.h>\n\
         #define MAP(NAME) struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 256); \\\n\
         \t__type(key, __u32); __type(value, __u64); } NAME SEC(\".maps\")\n\
         #define COUNT(NAME) do { __u64 *value = bpf_map_lookup_elem(&NAME, &key); \\\n\
         \tif (value) __sync_fetch_and_add(value, 1); } while (0)\n",
    );
    let mut body = String::new();
    for map in 0..MAPS {
        let _ = writeln!(source, "MAP(map{map});");
        if map < USED_MAPS {
            let _ = writeln!(body, "\tCOUNT(map{map});");
        }
    }
    let _ = write!(
        source,
        "SEC(\"xdp\") int count(struct xdp_md *ctx)\n{{\n\t__u32 key = ctx->rx_queue_index;\n{body}\treturn XDP_PASS;\n}}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    let metrics: Vec<Value> =
        (0..MAPS).map(|map| sample::window(&format!("metric{map}"), &format!("map{map}"))).collect();
    json!({ "interface": "mon0", "ingress": { "source": source, "metrics": metrics } })
}

fn milliseconds(time: Duration) -> f64 {
    1000.0 * time.as_secs_f64()
}
