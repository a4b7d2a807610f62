//! Frames of several buffers: programs in `SEC("xdp.frags")` see them in parts, programs in
//! `SEC("xdp")` see them whole or are not attached, and every frame passes uncut.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::reboot::forget;
use twinprobe_tests::replays::{pcap, replay};
use twinprobe_tests::sample::{counter_config, total, window, with_frags};
use twinprobe_tests::store::Store;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Stand, Topology, probes};

const LENGTH: usize = 8000;

/// A program for frames of a single buffer that counts packets and the bytes that it sees.
const BYTES: &str = include_str!("../../bpf/bytes.bpf.c");

/// A program for frames of several buffers that counts packets and all of their bytes.
const FRAGS: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define COUNTER(NAME) struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); \
	__type(value, __u64); } NAME SEC(".maps")
COUNTER(packets);
COUNTER(bytes);
COUNTER(tails);

static void add(void *map, __u64 amount)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, amount);
}

SEC("xdp.frags") int count_frags(struct xdp_md *ctx)
{
	__u64 length = bpf_xdp_get_buff_len(ctx);
	__u8 last = 0;

	add(&packets, 1);
	add(&bytes, length);
	/* The last byte is in the last buffer. */
	if (length > 60 && !bpf_xdp_load_bytes(ctx, 7999, &last, 1) && last == 0xa5)
		add(&tails, 1);
	return XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn frags_config() -> Value {
    let metrics = ["packets", "bytes", "tails"].map(|map| window(map, map));
    json!({ "interface": "mon0", "ingress": { "source": FRAGS, "metrics": metrics } })
}

fn bytes_config(mode: &str) -> Value {
    json!({
        "interface": "mon0",
        "ingress": { "mode": mode, "source": BYTES, "metrics": [{ "name": "seen", "map": "seen", "help": "a test's" }] }
    })
}

/// Returns the packets and bytes that the probe of [`bytes_config`] has counted.
fn seen(document: &Value) -> (u64, u64) {
    let value = &document["ingress"]["seen"]["entries"][0]["value"];
    let number = |field: &str| {
        value[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no {field} in {document}"))
    };
    (number("packets"), number("bytes"))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns a frame of this length that no network stack answers.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

fn large(topology: &Topology) -> Result<()> {
    for (namespace, interface) in [(topology.generator(), "gen0"), (topology.monitor(), "mon0")] {
        namespace.run("ip", &["link", "set", "dev", interface, "mtu", "9000"])?;
    }
    Ok(())
}

/// Two probes, observing and enforcing, in native and in generic mode.
#[test]
fn programs_for_several_buffers_see_every_frame() -> Result<()> {
    for mode in ["native", "generic"] {
        let topology = Topology::new()?;
        large(&topology)?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy_at(
            &daemon,
            &topology,
            Stand {
                mode,
                ..Stand::FRAGS
            },
        )?;
        let behind = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
        let configs = [
            ("packets", with_frags(counter_config("mon0", "XDP_PASS"))),
            ("lengths", frags_config()),
        ];
        for (name, config) in &configs {
            daemon
                .put(&format!("/v1/probes/{name}"), config)
                .expect(201);
            let attached =
                daemon.json(&format!("/v1/probes/{name}"))["interfaces"][0]["mode"].clone();
            assert_eq!(attached, mode, "{name}");
        }
        let mut passed = 0;
        for verdict in ["observe", "enforce", "observe"] {
            for (name, config) in &configs {
                let mut config = config.clone();
                config["ingress"]["verdict"] = json!(verdict);
                daemon
                    .put(&format!("/v1/probes/{name}"), &config)
                    .expect(200);
            }
            send_frames(topology.generator(), "gen0", &frame(LENGTH), 1000)?;
            send_frames(topology.generator(), "gen0", &frame(60), 100)?;
            passed += 1100;
            let read = |name: &str| daemon.json(&format!("/v1/probes/{name}/metrics"));
            let (packets, lengths) = (read("packets"), read("lengths"));
            assert_eq!(
                total(&packets, "ingress", "packets"),
                1100,
                "{mode}, {verdict}"
            );
            let sum = |metric: &str| total(&lengths, "ingress", metric);
            assert_eq!(sum("packets"), 1100, "{mode}, {verdict}");
            assert_eq!(
                sum("bytes"),
                1000 * LENGTH as u64 + 6000,
                "{mode}, {verdict}"
            );
            assert_eq!(sum("tails"), 1000, "{mode}, {verdict}");
            assert_eq!(behind.packets()?, passed, "{mode}, {verdict}");
            // After generic XDP, the kernel counts frames of such programs without their Ethernet
            // header.
            if mode == "native" {
                assert_eq!(
                    behind.bytes()?,
                    passed / 1100 * (1000 * LENGTH as u64 + 6000),
                    "frames were cut"
                );
            }
        }
        bystanders.finish()?;
    }
    Ok(())
}

/// A program for a single buffer sees frames whole in generic mode, on an interface and in a
/// replay. In native mode it is refused at such an MTU, and the answer says what to change.
#[test]
fn programs_for_a_single_buffer_count_every_byte() -> Result<()> {
    let topology = Topology::new()?;
    large(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let probes = daemon.json("/v1/probes");
    let refused = daemon
        .put("/v1/probes/p", &bytes_config("native"))
        .expect(422)
        .json();
    let message = text(&refused["errors"][0], "message");
    for words in [
        "an MTU of 9000",
        "lower the MTU",
        "SEC(\"xdp.frags\")",
        "bpf_xdp_get_buff_len",
        "mode generic",
    ] {
        assert!(message.contains(words), "{words}: {refused}");
    }
    assert_eq!(daemon.json("/v1/probes"), probes);
    for mode in ["generic", "auto"] {
        let status = daemon
            .put("/v1/probes/p", &bytes_config(mode))
            .expect(201)
            .json();
        assert_eq!(status["interfaces"][0]["mode"], "generic", "{status}");
        let warned = status["warnings"].to_string();
        assert_eq!(
            warned.contains("in generic mode") && warned.contains("an MTU of 9000"),
            mode == "auto",
            "{status}"
        );
        assert_eq!(
            text(&status["interfaces"][0], "reason").contains("an MTU of 9000"),
            mode == "auto",
            "{status}"
        );
        send_frames(topology.generator(), "gen0", &frame(8042), 10)?;
        assert_eq!(
            seen(&daemon.json("/v1/probes/p/metrics")),
            (10, 80_420),
            "{mode}"
        );
        daemon.delete("/v1/probes/p").expect(204);
    }
    let frames = [frame(8042), frame(60)];
    let packets = (0..20).map(|number| {
        (
            1_700_000_000_000_000_000 + number,
            &frames[number as usize % 2][..],
        )
    });
    let document = replay(
        &daemon,
        &bytes_config("auto"),
        &[("capture", &pcap(packets))],
    )
    .expect(200)
    .json();
    assert_eq!(
        (&document["replayed"], seen(&document)),
        (&json!({ "packets": 20 }), (20, 81_020))
    );
    bystanders.finish()
}

/// A probe that is alone at its hook can be replaced by one of the other kind. It keeps its content
/// and sees every frame.
#[test]
fn a_probe_alone_changes_over_with_its_content() -> Result<()> {
    for (mode, length) in [("native", 1000), ("generic", LENGTH)] {
        let topology = Topology::new()?;
        if length == LENGTH {
            large(&topology)?;
        }
        let mut daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
        let configs = [counter_config("mon0", "XDP_PASS"), frags_config()].map(|mut config| {
            config["ingress"]["mode"] = json!(mode);
            config
        });
        daemon.put("/v1/probes/p", &configs[0]).expect(201);
        let mut sent = 0;
        for round in 1..=6 {
            send_frames(topology.generator(), "gen0", &frame(length), 100)?;
            sent += 100;
            let sending = std::thread::scope(|scope| {
                let sending =
                    scope.spawn(|| send_frames(topology.generator(), "gen0", &frame(length), 1000));
                let status = daemon
                    .put("/v1/probes/p", &configs[round % 2])
                    .expect(200)
                    .json();
                assert_eq!(status["interfaces"][0]["mode"], mode, "{status}");
                sending.join()
            });
            sending.map_err(|_| anyhow::anyhow!("the sender has panicked"))??;
            sent += 1000;
            if round == 3 {
                daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
            }
        }
        let document = daemon.json("/v1/probes/p/metrics");
        assert_eq!(total(&document, "ingress", "packets"), sent, "{mode}");
        bystanders.finish()?;
    }
    Ok(())
}

/// A native program for several buffers is not replaced by one for a single buffer where the MTU is
/// too large.
#[test]
fn a_replacement_that_the_driver_refuses_changes_nothing() -> Result<()> {
    let topology = Topology::new()?;
    large(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    daemon.put("/v1/probes/p", &frags_config()).expect(201);
    let before = daemon.json("/v1/probes/p");
    let refused = daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(422)
        .json();
    let message = text(&refused["errors"][0], "message");
    assert!(
        message.contains("an MTU of 9000") && message.contains("delete the probe first"),
        "{refused}"
    );
    assert_eq!(daemon.json("/v1/probes/p"), before);
    send_frames(topology.generator(), "gen0", &frame(LENGTH), 10)?;
    let document = daemon.json("/v1/probes/p/metrics");
    assert_eq!(total(&document, "ingress", "bytes"), 10 * LENGTH as u64);
    bystanders.finish()
}

/// The first probe at a hook decides which packets all programs there get. A probe of the other
/// kind is refused with the names of the present ones, also after a restart, whichever version has
/// loaded them.
#[test]
fn a_mix_at_a_hook_is_refused() -> Result<()> {
    let (plain, frags) = (
        counter_config("mon0", "XDP_PASS"),
        with_frags(counter_config("mon0", "XDP_PASS")),
    );
    for (ours, other, words) in [
        (&plain, &frags, "write SEC(\"xdp\")"),
        (&frags, &plain, "write SEC(\"xdp.frags\")"),
    ] {
        let topology = Topology::new()?;
        let mut daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
        for name in ["first", "second"] {
            daemon.put(&format!("/v1/probes/{name}"), ours).expect(201);
        }
        for restart in ["none", "restart", "earlier version"] {
            if restart != "none" {
                let directories = daemon.kill()?;
                // A program of an earlier version was loaded for several buffers, and its record
                // does not say so.
                if restart == "earlier version" && ours == &frags {
                    for name in ["first", "second"] {
                        Store::open(&directories)?.edit(name, |record| {
                            let direction = &mut record["running"]["deployment"]["directions"][0];
                            assert_eq!(
                                direction.as_object_mut().and_then(|of| of.remove("frags")),
                                Some(json!(true))
                            );
                        })?;
                    }
                }
                daemon =
                    Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
            }
            let before = daemon.json("/v1/probes");
            for name in ["third", "second"] {
                let refused = daemon
                    .put(&format!("/v1/probes/{name}"), other)
                    .expect(409)
                    .json();
                let detail = text(&refused, "detail");
                let others = if name == "third" {
                    "(probes: first, second)"
                } else {
                    "(probes: first)"
                };
                assert!(
                    detail.contains(others) && detail.contains(words),
                    "{restart}: {refused}"
                );
                let mut named = other.clone();
                named["name"] = json!(name);
                let report = daemon.post("/v1/validate", &named).expect(200).json();
                assert_eq!(
                    text(&report["warnings"][0], "message"),
                    detail,
                    "{restart}: {report}"
                );
            }
            assert_eq!(daemon.json("/v1/probes"), before, "{restart}");
        }
        // A pattern is attached at a free interface, and says why it is not attached elsewhere.
        let mut pattern = other.clone();
        pattern
            .as_object_mut()
            .context("an object")?
            .remove("interface");
        pattern["interfaces"] = json!(["mon0*"]);
        let status = daemon.put("/v1/probes/third", &pattern).expect(201).json();
        let interface = &status["interfaces"][0];
        assert_eq!(
            (text(interface, "interface"), text(interface, "state")),
            ("mon0", "pending"),
            "{status}"
        );
        assert!(
            text(interface, "reason").contains("(probes: first, second)"),
            "{status}"
        );
        // After the others are detached, the probe is attached, and its verdict counts.
        for name in ["first", "second"] {
            daemon.delete(&format!("/v1/probes/{name}")).expect(204);
        }
        wait_for("the probe is attached", PATIENCE, || {
            let status = daemon.json("/v1/probes/third");
            ensure!(status["interfaces"][0]["state"] == "attached", "{status}");
            Ok(())
        })?;
        let refused = daemon.put("/v1/probes/first", ours).expect(409).json();
        assert!(
            text(&refused, "detail").contains("(probes: third)"),
            "{refused}"
        );
        send_frames(topology.generator(), "gen0", &frame(60), 10)?;
        let document = daemon.json("/v1/probes/third/metrics");
        assert_eq!(total(&document, "ingress", "packets"), 10);
        bystanders.finish()?;
    }
    Ok(())
}

/// Probes that an earlier version ran beside each other are deployed anew: the probe of the second
/// kind waits, and its status says why.
#[test]
fn a_start_attaches_the_first_kind_and_tells_of_the_second() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let plain = counter_config("mon0", "XDP_PASS");
    for name in ["first", "second"] {
        daemon
            .put(&format!("/v1/probes/{name}"), &plain)
            .expect(201);
    }
    let directories = daemon.kill()?;
    Store::open(&directories)?.edit("second", |record| {
        record["config"] = with_frags(record["config"].take());
    })?;
    forget(&directories, topology.monitor(), None)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    wait_for("both probes are deployed", PATIENCE, || {
        let [first, second] = ["first", "second"]
            .map(|name| daemon.json(&format!("/v1/probes/{name}"))["interfaces"][0].clone());
        ensure!(first["state"] == "attached", "{first}");
        ensure!(
            text(&second, "reason").contains("(probes: first)"),
            "{second}"
        );
        Ok(())
    })?;
    send_frames(topology.generator(), "gen0", &frame(60), 10)?;
    assert_eq!(
        total(
            &daemon.json("/v1/probes/first/metrics"),
            "ingress",
            "packets"
        ),
        10
    );
    daemon.delete("/v1/probes/first").expect(204);
    wait_for("the second probe is attached", PATIENCE, || {
        let status = daemon.json("/v1/probes/second");
        ensure!(status["interfaces"][0]["state"] == "attached", "{status}");
        Ok(())
    })
}

/// Probes of the library are for packets of several buffers, unless an option adapts them to
/// programs for a single buffer.
#[test]
fn the_library_goes_with_both_kinds() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for name in ["packet-counter", "top-talkers"] {
        let mut config = probes::configuration(name, "mon0")?;
        let path = format!("/v1/probes/{name}");
        let refused = daemon.put(&path, &config).expect(409).json();
        let detail = text(&refused, "detail");
        assert!(
            detail.contains("define TWINPROBE_SINGLE_BUFFER"),
            "{refused}"
        );
        config["ingress"]["defines"] = json!({ "TWINPROBE_SINGLE_BUFFER": "1" });
        daemon.put(&path, &config).expect(201);
    }
    bystanders.finish()
}
