//! The trial of programs before their attachment: its figures of the cost, its refusals, and the
//! absence of traces in the counts.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total, window};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Store, Topology, timed};

const HEADERS: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";
const LICENSE: &str = "char LICENSE[] SEC(\"license\") = \"GPL\";\n";

/// A program that takes hundreds of nanoseconds for UDP packets only.
fn slow() -> String {
    slow_for(17, 3_000)
}

/// A program that takes this many steps for packets of one protocol only.
fn slow_for(protocol: u8, steps: u32) -> String {
    format!(
        "{HEADERS}SEC(\"xdp\") int slow(struct xdp_md *ctx)\n{{\n\
         \tunsigned char *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;\n\
         \t__u64 x = 0;\n\
         \tif (p + 24 > end || p[23] != {protocol})\n\t\treturn XDP_PASS;\n\
         \tfor (int i = 0; i < {steps}; i++) {{ x = x * 31 + i; asm volatile(\"\" : \"+r\"(x)); }}\n\
         \treturn x == 7 ? XDP_ABORTED : XDP_PASS;\n}}\n{LICENSE}"
    )
}

fn limited(source: &str, limit: u64) -> Value {
    json!({ "interface": "mon0", "ingress": { "source": source, "max_ns_per_packet": limit } })
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

/// A counter with twins at XDP and one without at TC.
fn both_directions() -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    let egress =
        format!("{HEADERS}SEC(\"tc\") int out(struct __sk_buff *skb) {{ return 0; }}\n{LICENSE}");
    config["egress"] = json!({ "source": egress });
    config
}

#[test]
fn validation_status_and_metrics_say_the_same_of_the_cost() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = both_directions();
    let report = daemon.post("/v1/validate", &config).expect(200).json();
    let created = daemon.put("/v1/probes/p", &config).expect(201).json();
    for cost in [&report["cost"], &created["cost"]] {
        for direction in ["ingress", "egress"] {
            let of = &cost["directions"][direction];
            assert!((1..5_000).contains(&number(&of["ns_per_packet"])), "{of}");
            assert!(
                of["frame"].as_str().is_some_and(|frame| !frame.is_empty()),
                "{of}"
            );
            assert!(of["noise_ns"].is_u64(), "{of}");
        }
        let [ingress, egress] =
            ["ingress", "egress"].map(|direction| &cost["directions"][direction]);
        assert!(
            number(&ingress["instructions"]) > number(&egress["instructions"]),
            "{cost}"
        );
        assert!(
            number(&ingress["verified"]) >= 5 && number(&ingress["stack_bytes"]) >= 4,
            "{cost}"
        );
        assert_eq!(
            (&egress["instructions"], &egress["stack_bytes"]),
            (&json!(2), &json!(0)),
            "{cost}"
        );
        // Twins have an ARRAY of one counter of 8 bytes each.
        assert!((16..16_384).contains(&number(&cost["map_bytes"])), "{cost}");
        assert!(cost.get("live").is_none(), "nothing is measured: {cost}");
    }
    let check = |daemon: &Daemon| {
        let status = daemon.json("/v1/probes/p");
        assert_eq!(status["cost"], created["cost"]);
        let page = daemon.get("/metrics").expect(200).text().to_owned();
        let sample =
            |line: String| assert!(page.lines().any(|have| have == line), "{line}: {page}");
        sample(format!(
            "twinprobe_probe_map_bytes{{probe=\"p\"}} {}",
            status["cost"]["map_bytes"]
        ));
        for direction in ["ingress", "egress"] {
            let nanoseconds = number(&status["cost"]["directions"][direction]["ns_per_packet"]);
            let family = format!(
                "twinprobe_probe_seconds_per_packet{{probe=\"p\",direction=\"{direction}\"}} "
            );
            let shown = page
                .lines()
                .find_map(|line| line.strip_prefix(&*family))
                .expect("a sample");
            assert_eq!(shown.parse(), Ok(nanoseconds as f64 / 1e9), "{family}");
            for field in ["instructions", "verified", "stack_bytes"] {
                let value = &status["cost"]["directions"][direction][field];
                sample(format!(
                    "twinprobe_probe_{field}{{probe=\"p\",direction=\"{direction}\"}} {value}"
                ));
            }
        }
    };
    check(&daemon);
    // A daemon that adopts the probe tries nothing, and reports the earlier figures.
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    check(&daemon);
    Ok(())
}

#[test]
fn a_program_that_costs_too_much_is_refused_and_changes_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/kept", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let before = daemon.json("/v1/probes");
    let config = limited(&slow(), 200);
    let answers = [
        daemon.put("/v1/probes/other", &config),
        daemon.put("/v1/probes/kept", &config),
        daemon.post("/v1/validate", &config),
    ];
    for answer in answers {
        let problem = answer.expect(422).json();
        let finding = &problem["errors"][0];
        assert_eq!(
            problem["errors"].as_array().map(Vec::len),
            Some(1),
            "{problem}"
        );
        assert_eq!(finding["stage"], "admission");
        assert_eq!(finding["field"], "ingress.max_ns_per_packet");
        let message = finding["message"].as_str().context("a message")?;
        // The two numbers are the measured time and the limit.
        assert!(
            message.contains("udp_dns") && message.contains("max_ns_per_packet is 200"),
            "{message}"
        );
        let measured = message.split(' ').find_map(|word| word.parse::<u64>().ok());
        assert!(measured.is_some_and(|measured| measured > 200), "{message}");
    }
    assert_eq!(daemon.json("/v1/probes"), before, "something changed");
    // The same program is admitted under a limit that allows it, and a lighter program under the
    // first limit.
    daemon
        .put("/v1/probes/slow", &limited(&slow(), 1_000_000_000))
        .expect(201);
    let mut light = counter_config("mon0", "XDP_PASS");
    light["ingress"]["max_ns_per_packet"] = json!(5_000);
    daemon.put("/v1/probes/light", &light).expect(201);
    for (limit, status) in [
        (json!(0), 422),
        (json!(1_000_000_001), 422),
        (json!("5"), 422),
        (json!(-1), 422),
    ] {
        light["ingress"]["max_ns_per_packet"] = limit.clone();
        let problem = daemon.put("/v1/probes/light", &light).expect(status).json();
        assert_eq!(
            problem["errors"][0]["field"], "ingress.max_ns_per_packet",
            "{limit}: {problem}"
        );
    }
    bystanders.finish()
}

/// An admitted program continues, even if a later deployment runs on a slower machine.
#[test]
fn a_start_that_deploys_a_probe_anew_warns_of_its_cost() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &limited(&slow(), 1_000_000_000))
        .expect(201);
    let (_, directories) = daemon.terminate()?;
    let store = Store::open(&directories)?;
    let stored = String::from_utf8(store.record("p")?)?;
    let lowered = stored.replace(
        "\"max_ns_per_packet\":1000000000",
        "\"max_ns_per_packet\":200",
    );
    ensure!(lowered != stored, "{stored}");
    // The record of another boot: nothing can be adopted.
    let mut lowered: Value = serde_json::from_str(&lowered)?;
    lowered["running"]["deployment"]["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
    store.set_record("p", lowered.to_string())?;
    drop(store);
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    let status = daemon.json("/v1/probes/p");
    assert_eq!(status["state"], "running", "{status}");
    let warning = &status["warnings"][0];
    assert_eq!(
        (&warning["stage"], &warning["field"]),
        (&json!("admission"), &json!("ingress.max_ns_per_packet"))
    );
    Ok(())
}

/// A record of an earlier version has no cost, and its probe continues without a cost.
#[test]
fn a_probe_of_an_earlier_version_has_no_cost() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let (_, directories) = daemon.terminate()?;
    let store = Store::open(&directories)?;
    let mut stored: Value = serde_json::from_slice(&store.record("p")?)?;
    let running = stored["running"].as_object_mut().context("a deployment")?;
    ensure!(running.remove("cost").is_some(), "{stored}");
    store.set_record("p", stored.to_string())?;
    drop(store);
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    let status = daemon.json("/v1/probes/p");
    assert_eq!(
        (&status["state"], status.get("cost")),
        (&json!("running"), None)
    );
    ensure!(
        !daemon
            .get("/metrics")
            .text()
            .contains("twinprobe_probe_map_bytes{"),
        "an unknown cost is shown"
    );
    Ok(())
}

/// When the first packet comes, the maps of windows, events and live metrics have the content from
/// the source, or the earlier counts after a replacement: the trial of the new program has not
/// changed them.
#[test]
fn a_trial_counts_nothing() -> Result<()> {
    const MAPS: &str = "#define MAP(NAME, TYPE, SIZE) struct { __uint(type, BPF_MAP_TYPE_##TYPE); \
        __uint(max_entries, SIZE); __type(key, __u32); __type(value, __u64); } NAME SEC(\".maps\")\n\
        #define COUNT(NAME) do { __u64 *n = bpf_map_lookup_elem(&NAME, &key), one = 1; \
        if (n) ++*n; else bpf_map_update_elem(&NAME, &key, &one, 0); } while (0)\n\
        MAP(hash, HASH, 8); MAP(array, ARRAY, 1); MAP(live, HASH, 8); MAP(drained, HASH, 8);\n\
        struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 64); __type(value, __u64); } queue SEC(\".maps\");\n\
        __u64 variable;\n";
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let source = |comment: &str| {
        format!(
            "{HEADERS}{MAPS}SEC(\"xdp\") int f(struct xdp_md *ctx)\n{{\n\t__u32 key = 0;\n\t__u64 one = 1;\n\
             \tCOUNT(hash); COUNT(array); COUNT(live); COUNT(drained);\n\
             \tbpf_map_push_elem(&queue, &one, 0); __sync_fetch_and_add(&variable, 1);\n\treturn XDP_PASS;\n}}\n\
             {LICENSE}// {comment}\n"
        )
    };
    let config = |comment: &str| {
        json!({ "interface": "mon0", "ingress": { "source": source(comment), "metrics": [
            window("hash", "hash"), window("array", "array"), { "name": "live", "map": "live" },
            { "name": "drained", "map": "drained", "init": true }, { "name": "queue", "map": "queue" },
            { "name": "variable", "map": ".bss:variable" },
        ] } })
    };
    let metrics = ["hash", "array", "live", "drained", "queue", "variable"];
    daemon.put("/v1/probes/p", &config("first")).expect(201);
    let document = daemon.json("/v1/probes/p/metrics");
    assert_eq!(
        metrics.map(|metric| total(&document, "ingress", metric)),
        [0; 6],
        "{document}"
    );
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(20)?;
    daemon.put("/v1/probes/p", &config("second")).expect(200);
    daemon.post("/v1/validate", &config("third")).expect(200);
    generator.send(10)?;
    let document = daemon.json("/v1/probes/p/metrics");
    assert_eq!(
        metrics.map(|metric| total(&document, "ingress", metric)),
        [30; 6],
        "{document}"
    );
    Ok(())
}

/// A program that writes to packets is refused as an observing one and admitted as an enforcing
/// one.
#[test]
fn observing_programs_leave_packets_alone() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let packet = "unsigned char *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end; if (p + 14 <= end) p[5] = 1;";
    let xdp = format!("SEC(\"xdp\") int f(struct xdp_md *ctx) {{ {packet} return XDP_PASS; }}");
    let tc = format!("SEC(\"tc\") int f(struct __sk_buff *ctx) {{ {packet} return 0; }}");
    let mark = "SEC(\"tc\") int f(struct __sk_buff *ctx) { ctx->mark = 7; return 0; }".to_owned();
    let cases = [
        ("ingress", "xdp", xdp),
        ("ingress", "tc", tc.clone()),
        ("egress", "tc", tc),
        ("egress", "tc", mark),
    ];
    for (direction, hook, program) in cases {
        let source = format!("{HEADERS}{program}\n{LICENSE}");
        let config = |verdict: &str| json!({ "interface": "mon0", direction: { "hook": hook, "verdict": verdict, "source": source } });
        let problem = daemon
            .put("/v1/probes/p", &config("observe"))
            .expect(422)
            .json();
        let finding = &problem["errors"][0];
        assert_eq!(finding["stage"], "admission", "{problem}");
        assert_eq!(finding["field"], format!("{direction}.source"), "{problem}");
        assert_eq!(daemon.json("/v1/probes")["probes"], json!([]));
        daemon.put("/v1/probes/p", &config("enforce")).expect(201);
        daemon.delete("/v1/probes/p").expect(204);
    }
    Ok(())
}

/// Three probes. In the trial `udp` is the slow one. For the packets under test `tcp` is slow.
const NAMES: [&str; 3] = ["udp", "tcp", "light"];

/// Starts a daemon that measures these probes.
fn measured(topology: &Topology) -> Result<Daemon> {
    let options = DaemonOptions::default().argument("--measure-cost");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let configs = [
        limited(&slow_for(17, 40_000), 1_000_000_000),
        limited(&slow_for(6, 10_000), 1_000_000_000),
        counter_config("mon0", "XDP_PASS"),
    ];
    for (name, config) in NAMES.into_iter().zip(&configs) {
        daemon
            .put(&format!("/v1/probes/{name}"), config)
            .expect(201);
    }
    Ok(daemon)
}

/// Returns the cost of running probes, when samples are there.
fn by_samples(daemon: &Daemon) -> Result<[Value; 3]> {
    wait_for("samples", PATIENCE, || {
        let live =
            NAMES.map(|name| daemon.json(&format!("/v1/probes/{name}"))["cost"]["live"][0].clone());
        ensure!(live.iter().all(|live| live["by"] == "samples"), "{live:?}");
        Ok(live)
    })
}

/// The daemon has given up all rights that it does not need, and keeps those to read the clocks and
/// the kernel's symbols.
#[test]
fn samples_tell_the_time_of_each_probe() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = measured(&topology)?;
    let traffic = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?
        .spawn(Load::default());
    let live = by_samples(&daemon)?;
    traffic.stop()?;
    for live in &live {
        assert_eq!(
            (&live["interface"], &live["direction"], &live["hook"]),
            (&json!("mon0"), &json!("ingress"), &json!("xdp")),
            "{live}"
        );
        assert!(number(&live["packets"]) > 0, "{live}");
    }
    Ok(())
}

#[timed("it compares what programs take, and a busy machine has few samples")]
fn live_costs_name_the_probe_that_takes_the_time() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = measured(&topology)?;
    let tried = |name| {
        let cost = &daemon.json(&format!("/v1/probes/{name}"))["cost"];
        number(&cost["directions"]["ingress"]["ns_per_packet"])
    };
    assert!(
        tried("udp") > 2 * tried("tcp"),
        "{} {}",
        tried("udp"),
        tried("tcp")
    );
    let traffic = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?
        .spawn(Load::default());
    let live = by_samples(&daemon)?;
    traffic.stop()?;
    let of = |at: usize, field: &str| live[at][field].as_f64().context("a number");
    let [udp, tcp, light] = [
        of(0, "ns_per_packet")?,
        of(1, "ns_per_packet")?,
        of(2, "ns_per_packet")?,
    ];
    let all = of(0, "dispatcher_ns_per_packet")?;
    assert!(
        tcp > 5.0 * udp && tcp > 5.0 * light && tcp > all / 2.0,
        "{live:?}"
    );
    assert!(
        udp + tcp + light < all + 0.3,
        "the rest is the dispatcher's: {live:?}"
    );
    let page = daemon.get("/metrics").expect(200).text().to_owned();
    let labels = "{probe=\"tcp\",interface=\"mon0\",direction=\"ingress\",hook=\"xdp\"} ";
    let shown = |family: &str| {
        let start = format!("twinprobe_probe_{family}{labels}");
        page.lines()
            .find_map(|line| line.strip_prefix(&*start)?.parse::<f64>().ok())
    };
    assert!(
        shown("live_seconds_per_packet").is_some_and(|time| time > 1e-8 && time < 1e-4),
        "{page}"
    );
    assert!(
        shown("live_packets").is_some_and(|packets| packets > 0.0),
        "{page}"
    );
    let budget = "twinprobe_probe_max_seconds_per_packet{probe=\"tcp\",direction=\"ingress\"} 1";
    assert!(page.lines().any(|line| line.starts_with(budget)), "{page}");
    Ok(())
}
