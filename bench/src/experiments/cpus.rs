//! A part of the experiment `scale`: packets of one and of two sending CPUs.

use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::{Daemon, Topology, veth_pair};

use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::table::Table;

const PROBE: &str = "/v1/probes/probe";

/// Measures a flow table that is fed by one sending CPU, and by two.
pub fn table(bench: &Bench) -> Result<(Table, String)> {
    let mut table = Table::new(&[
        "map",
        "rounds",
        "one CPU, Mpps",
        "two CPUs, Mpps",
        "two / one",
        "null",
    ]);
    let mut ratios = Vec::new();
    for kind in ["HASH", "PERCPU_HASH"] {
        let topology = Topology::new()?;
        veth_pair(topology.generator(), "gen1", topology.monitor(), "mon2")?;
        let daemon = Daemon::start(topology.monitor())?;
        daemon.put(PROBE, &flow_table(kind)).expect(201);
        let generator = |interface: &str, cpu: usize| {
            let options = GeneratorOptions {
                spread: Spread::default(),
                cpu: Some(cpu),
                ..GeneratorOptions::default()
            };
            Generator::new(topology.generator(), interface, options)
        };
        let (mut first, mut second) = (generator("gen0", 0)?, generator("gen1", 1)?);
        let packets = bench.times(8_000_000, 50_000);
        let rounds = bench.rounds(9, 1);
        let mut sent = 0;
        let compared = Comparison::measure(rounds, |way| {
            let started = Instant::now();
            let mut all = packets;
            if way == Way::Base {
                first.send(packets)?;
            } else {
                all *= 2;
                thread::scope(|scope| {
                    let other = scope.spawn(|| second.send(packets));
                    first.send(packets)?;
                    other
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })?;
            }
            sent += all;
            Ok(all as f64 / started.elapsed().as_secs_f64() / 1e6)
        })?;
        let counted = total(
            &daemon.json(&format!("{PROBE}/metrics")),
            "ingress",
            "flows",
        );
        ensure!(counted == sent, "{counted} of {sent} packets were counted");
        ratios.push(format!("{kind} {:.2}", compared.ratio().value));
        table.row([
            kind.to_owned(),
            rounds.to_string(),
            Estimate::of(&compared.base).show(2),
            Estimate::of(&compared.other).show(2),
            compared.ratio().show(2),
            compared.null_ratio().show(2),
        ]);
    }
    Ok((
        table,
        format!(
            "Two CPUs against one, in packets per second: {}.",
            ratios.join(", ")
        ),
    ))
}

/// Returns a probe that counts the packets of each flow and drops them.
fn flow_table(kind: &str) -> Value {
    let source = format!(
        "#include <linux/bpf.h>\n\
         #include <bpf/bpf_helpers.h>\n\
         struct {{ __uint(type, BPF_MAP_TYPE_{kind}); __uint(max_entries, 65536); __type(key, __u64); __type(value, __u64); }} \
         flows SEC(\".maps\");\n\
         SEC(\"xdp\") int count(struct xdp_md *ctx)\n\
         {{\n\
         \tunsigned char *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;\n\
         \tif (p + 38 > end)\n\
         \t\treturn XDP_DROP;\n\
         \t__u64 key = *(__u32 *)(p + 26) | (__u64)*(__u16 *)(p + 34) << 32, one = 1, *n;\n\
         \tn = bpf_map_lookup_elem(&flows, &key);\n\
         \tif (n)\n\
         \t\t__sync_fetch_and_add(n, 1);\n\
         \telse if (bpf_map_update_elem(&flows, &key, &one, BPF_NOEXIST) && (n = bpf_map_lookup_elem(&flows, &key)))\n\
         \t\t__sync_fetch_and_add(n, 1);\n\
         \treturn XDP_DROP;\n\
         }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    let mut metric = json!({ "name": "flows", "map": "flows", "snapshot": true, "init": true });
    if kind.starts_with("PERCPU") {
        metric["agg"] = "sum".into();
    }
    json!({
        "interfaces": ["mon0", "mon2"],
        "ingress": { "verdict": "enforce", "source": source, "metrics": [metric] }
    })
}
