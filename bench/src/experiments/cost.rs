//! The trial of programs before they are attached: its prediction, compared with the kernel's
//! measurement for live packets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::sample::{counter_config, window};
use twinprobe_tests::traffic::Spread;
use twinprobe_tests::wait::wait_for;

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::probes::nameless;

const PROBE: &str = "/v1/probes/probe";
const STEPS: &str = "500 steps";

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Predicted against live cost",
        "How well does the predicted cost of a probe agree with the live cost?",
        "`predicted` is the result of a trial before the attachment. `dispatcher` is the kernel's count for live \
         packets, and `live` is that count less the count for an empty program. The programs run one after the \
         other. The empty one is the first and, as null comparison, the last. Medians of \
         measurements of 50 ms with intervals of 95 % (bootstrap).",
    );
    section.details =
        "`predicted` is `ns_per_packet` in the probe's status, with its noise: for the sample packet that takes \
         longest, of 64 flows that the program has not seen. `dispatcher` is counted with `--measure-cost` for \
         60-byte SYNs of 97 x 256 flows that arrive as fast as one CPU can send and receive them: dispatcher, \
         program, and the counting itself. The trial subtracts the dispatcher with an empty program, too."
        .to_owned();
    section.generator = Some(Site::new(bench)?.describe());
    let mut table = Table::new(&[
        "hook",
        "program",
        "predicted, ns",
        "frame",
        "samples",
        "dispatcher, ns",
        "live, ns",
        "live / predicted",
    ]);
    let mut steps = Vec::new();
    for hook in bench.cases(&["xdp", "tc"], &["xdp"]) {
        let mut base = None;
        for (name, config) in programs(bench, hook)? {
            let measured = measure(bench, &config)?;
            let dispatcher = measured.dispatcher.median();
            let live = dispatcher - *base.get_or_insert(dispatcher);
            let run = &measured.predicted;
            let predicted = run["ns_per_packet"].as_f64().context("a prediction")?;
            if name == STEPS {
                steps.push(format!("{:.2} ({hook})", live / predicted));
            }
            table.row([
                hook.to_owned(),
                name.to_owned(),
                format!("{predicted} ± {}", run["noise_ns"]),
                run["frame"].as_str().unwrap_or_default().to_owned(),
                measured.dispatcher.len().to_string(),
                Estimate::of(&measured.dispatcher).show(1),
                format!("{live:.1}"),
                format!("{:.2}", live / predicted),
            ]);
        }
    }
    section.tables.push(table);
    section.meaning =
        "The prediction for programs that compute is right within a few per cent. Figures below about 15 ns mean only: \
        less than 15 ns. The prediction for programs with flows is for packets of new flows, which take \
        longest."
            .to_owned();
    section.claims.push(Claim {
        claim: "live by predicted cost of a program that computes",
        paper: "1",
        ours: steps.join(", "),
        peers: String::new(),
    });
    Ok(section)
}

/// Returns the programs, the empty one first.
fn programs(bench: &Bench, hook: &str) -> Result<Vec<(&'static str, Value)>> {
    let at = |mut config: Value| {
        config["ingress"]["hook"] = hook.into();
        if hook == "tc" {
            let source = config["ingress"]["source"].as_str().unwrap_or_default();
            let source = source
                .replace("SEC(\"xdp\")", "SEC(\"tc\")")
                .replace("struct xdp_md", "struct __sk_buff");
            config["ingress"]["source"] = source.replace("XDP_PASS", "0").into();
        }
        config
    };
    let head = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let program = |maps: &str, body: &str, metrics: Value| {
        let source = format!(
            "{head}{maps}\nSEC(\"xdp\") int f(struct xdp_md *ctx) {{ {body} return XDP_PASS; }}\n"
        );
        at(json!({ "interface": "mon0", "ingress": { "source": source, "metrics": metrics } }))
    };
    let hash = "struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 65536); __type(key, __u64); \
        __type(value, __u64); } flows SEC(\".maps\");";
    let count = "unsigned char *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end; \
        if (p + 38 > end) return XDP_PASS; __u64 key = *(__u32 *)(p + 26) | (__u64)*(__u32 *)(p + 34) << 32, one = 1; \
        __u64 *n = bpf_map_lookup_elem(&flows, &key); \
        if (n) __sync_fetch_and_add(n, 1); else bpf_map_update_elem(&flows, &key, &one, 0);";
    let spin = "__u64 x = 1; for (int i = 0; i < 500; i++) { x = x * 31 + i; asm volatile(\"\" : \"+r\"(x)); }";
    let mut programs = vec![
        ("empty", program("", "", json!([]))),
        ("counter, twins", at(counter_config("mon0", "XDP_PASS"))),
        (
            "hash of flows, twins",
            program(hash, count, json!([window("flows", "flows")])),
        ),
        (STEPS, program("", spin, json!([]))),
    ];
    if bench.quick {
        // The daemon measures every 5 s.
        programs.truncate(1);
        return Ok(programs);
    }
    let features = nameless("flow-features", "mon0")?;
    if features["ingress"]["hook"].as_str().unwrap_or("xdp") == hook {
        programs.push(("flow-features (15 features)", features));
    }
    programs.push(("empty, again", program("", "", json!([]))));
    Ok(programs)
}

/// The results of one program.
struct Measured {
    predicted: Value,
    dispatcher: Sample,
}

fn measure(bench: &Bench, config: &Value) -> Result<Measured> {
    let site = Site::new(bench)?;
    let daemon = site.daemon(&["--measure-cost"])?;
    let mut config = config.clone();
    config["interface"] = site.interface().into();
    let created = daemon.put(PROBE, &config).expect(201).json();
    let load = site.send(Spread::default())?;
    let (mut dispatcher, mut last) = (Sample::default(), Value::Null);
    for _ in 0..bench.rounds(9, 1) {
        let live = wait_for("a live cost", Duration::from_secs(30), || {
            let live = daemon.json(PROBE)["cost"]["live"][0].clone();
            ensure!(
                live["measured"].is_string() && live["measured"] != last,
                "{live}"
            );
            Ok(live)
        })?;
        dispatcher.add(
            live["dispatcher_ns_per_packet"]
                .as_f64()
                .context("a number")?,
        );
        last = live["measured"].clone();
    }
    load.stop()?;
    Ok(Measured {
        predicted: created["cost"]["directions"]["ingress"].clone(),
        dispatcher,
    })
}
