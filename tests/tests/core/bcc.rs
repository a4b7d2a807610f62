//! Sources in the dialect of BCC: calls through tables of programs, and a table that both
//! directions use.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::sample::{total, window};
use twinprobe_tests::{Daemon, Topology};

const CALLS: &str = include_str!("../../bpf/bcc/calls.c");
const SESSIONS: &str = include_str!("../../bpf/bcc/sessions.c");

/// Returns a packet of the tests' own protocol with this byte at the offset 14.
fn packet(byte: u8) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    packet[14] = byte;
    packet
}

/// Returns the values of an array from slot 0 on.
fn values(document: &Value, direction: &str, metric: &str) -> Vec<u64> {
    let entries = document[direction][metric]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("no {direction}.{metric} in {document}"));
    entries
        .iter()
        .map(|entry| entry["value"].as_u64().expect("a number"))
        .collect()
}

/// Two probes with the same source and other functions in the slots, each with twins, at all hooks.
#[test]
fn calls_go_on_in_the_function_of_a_slot() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let direction = |hook: &str, calls: &Value| json!({ "hook": hook, "source": CALLS, "calls": calls, "metrics": [window("seen", "seen")] });
    let all = json!({ "next": { "0": "again", "1": "second", "2": "third" } });
    let few = json!({ "next": { "1": "third", "2": "first" } });
    for (name, hook, calls) in [("a", "xdp", &all), ("b", "tc", &all), ("c", "xdp", &few)] {
        let mut config = json!({ "interface": "mon0", "ingress": direction(hook, calls), "egress": direction("tc", calls) });
        if name == "c" {
            for direction in ["ingress", "egress"] {
                config[direction]["entry"] = json!("first");
            }
        }
        let status = daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(201)
            .json();
        let warnings = status["warnings"].as_array().unwrap();
        let lines: Vec<&Value> = warnings.iter().map(|warning| &warning["line"]).collect();
        assert_eq!(
            lines,
            [19, 19],
            "no function stands in a slot of empty: {}",
            status["warnings"]
        );
        assert!(
            warnings[0]["message"]
                .as_str()
                .unwrap()
                .contains(r#""calls": {"empty": {"1": "FUNCTION"}}"#)
        );
        assert_eq!(
            status["programs"]["ingress"],
            json!({ "entry": "first", "twins": true })
        );
    }
    for round in 1..=3 {
        for (slot, count) in [(0, 3), (1, 5), (2, 7), (5, 11), (200, 13)] {
            send_frames(topology.generator(), "gen0", &packet(slot), count)?;
            send_frames(topology.monitor(), "mon0", &packet(slot), 2 * count)?;
        }
        for (name, expected) in [
            // The kernel allows 33 calls for a packet.
            ("a", [39, 39, 3 * 33, 0, 5, 0, 12, 24, 24]),
            ("b", [39, 39, 3 * 33, 0, 5, 0, 12, 24, 24]),
            // Slot 2 leads back to the start, and there to slot 2 again.
            ("c", [39 + 7 * 33, 39 + 7 * 33, 0, 0, 0, 0, 5, 27, 27]),
        ] {
            let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
            assert_eq!(document["window"]["seq"], round);
            assert_eq!(
                values(&document, "ingress", "seen")[..9],
                expected,
                "{name}, window {round}"
            );
            let twice = expected.map(|count| 2 * count);
            assert_eq!(
                values(&document, "egress", "seen")[..9],
                twice,
                "{name}, window {round}"
            );
        }
    }
    Ok(())
}

/// The verdict is that of the last function, by the numbers of the dialect.
#[test]
fn a_function_that_is_called_gives_the_verdict() -> Result<()> {
    const SOURCE: &str = "BPF_PROG_ARRAY(next, 2);\nint last(struct CTXTYPE *ctx) { return RX_DROP; }\n\
        static __always_inline int handle_rx(struct CTXTYPE *ctx, struct pkt_metadata *md) {\n\
        next.call(ctx, load_byte(ctx, 14));\nreturn RX_OK; }";
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let behind = json!({ "interface": "mon0", "priority": 1, "ingress": { "hook": "tc",
        "source": "BPF_ARRAY(own, u64, 1);\nint count(struct CTXTYPE *ctx) { own.increment(0); return 0; }",
        "metrics": [window("own", "own")] } });
    daemon.put("/v1/probes/behind", &behind).expect(201);
    for hook in ["xdp", "tc"] {
        let config = json!({ "interface": "mon0", "ingress": { "hook": hook, "verdict": "enforce", "source": SOURCE,
            "calls": { "next": { "1": "last" } } } });
        daemon.put("/v1/probes/p", &config).expect(201);
        for byte in [1, 0] {
            send_frames(topology.generator(), "gen0", &packet(byte), 10)?;
        }
        assert_eq!(
            values(&daemon.json("/v1/probes/behind/metrics"), "ingress", "own"),
            [10],
            "{hook}"
        );
        daemon.delete("/v1/probes/p").expect(204);
    }
    Ok(())
}

#[test]
fn slots_that_cannot_be_filled_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for (calls, field, line, words) in [
        (
            json!({ "next": { "8": "third" } }),
            "ingress.source",
            json!(5),
            "slot 8, which this table does not have",
        ),
        (
            json!({ "seen": { "1": "third" } }),
            "ingress.calls.seen",
            Value::Null,
            "it has next, empty",
        ),
        (
            json!({ "next": { "1": "fourth" } }),
            "ingress.calls.next",
            Value::Null,
            "no function fourth",
        ),
        (
            json!({ "next": { "1": "jump" } }),
            "ingress.calls.next",
            Value::Null,
            "takes 2 parameters",
        ),
    ] {
        let config = json!({ "interface": "mon0", "ingress": { "source": CALLS, "entry": "first", "calls": calls } });
        let problem = daemon.put("/v1/probes/p", &config).expect(422).json();
        let error = &problem["errors"][0];
        assert_eq!(
            (&error["field"], &error["line"], &error["stage"]),
            (&json!(field), &line, &json!("compile")),
            "{problem}"
        );
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{problem}"
        );
    }
    daemon.get("/v1/probes/p").expect(404);
    Ok(())
}

/// Packets of both directions in one table; one source declares that the other one defines it.
#[test]
fn a_table_that_is_extern_is_that_of_the_other_direction() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let taken = ["\"hash\"", "\"percpu_array\""]
        .iter()
        .fold(SESSIONS.to_owned(), |source, kind| {
            source.replace(kind, "\"extern\"")
        });
    let direction = |hook: &str, field: &str, source: &str, metrics: &Value| json!({ "hook": hook, "source": source, "metrics": metrics, "defines": { "FIELD": field } });
    let metrics = |init: bool| {
        json!([{ "name": "sessions", "map": "sessions", "snapshot": true, "init": init },
               { "name": "cpus", "map": "cpus", "snapshot": true, "init": init, "agg": "sum" },
               { "name": "own", "map": "own", "snapshot": true, "init": init }])
    };
    let config = |hook: &str, ingress_defines: bool, metrics: &Value| {
        let [ingress, egress] = if ingress_defines {
            [SESSIONS, &taken]
        } else {
            [&taken, SESSIONS]
        };
        json!({ "interface": "mon0", "ingress": direction(hook, "in", ingress, metrics),
                "egress": direction("tc", "out", egress, metrics) })
    };
    // The documents that must appear after these numbers of incoming and outgoing packets, in each
    // of three sessions.
    let check = |document: &Value, [packets_in, packets_out]: [u64; 2], own: [u64; 2]| {
        for direction in ["ingress", "egress"] {
            let sessions = document[direction]["sessions"]["entries"]
                .as_array()
                .unwrap();
            assert_eq!(sessions.len(), 3, "{document}");
            for session in sessions {
                assert_eq!(
                    (&session["value"]["in"], &session["value"]["out"]),
                    (&json!(packets_in), &json!(packets_out)),
                    "{document}"
                );
            }
            assert_eq!(
                total(document, direction, "cpus"),
                3 * (packets_in + packets_out),
                "{document}"
            );
        }
        assert_eq!(
            ["ingress", "egress"].map(|direction| total(document, direction, "own")),
            own,
            "{document}"
        );
    };
    let send = || -> Result<()> {
        for session in 1..=3 {
            send_frames(topology.generator(), "gen0", &packet(session), 4)?;
            send_frames(topology.monitor(), "mon0", &packet(session), 7)?;
        }
        Ok(())
    };
    for hook in ["xdp", "tc"] {
        let status = daemon
            .put("/v1/probes/p", &config(hook, true, &metrics(true)))
            .expect(201)
            .json();
        let shared = json!([{ "map": "cpus", "type": "percpu_array", "twins": true },
                            { "map": "sessions", "type": "hash", "twins": true }]);
        assert_eq!(status["shared_maps"], shared);
        // The counts of both twins.
        for _ in 0..3 {
            send()?;
            check(&daemon.json("/v1/probes/p/metrics"), [4, 7], [12, 21]);
        }
        daemon.delete("/v1/probes/p").expect(204);
    }
    daemon
        .put("/v1/probes/p", &config("xdp", true, &metrics(false)))
        .expect(201);
    send()?;
    check(&daemon.json("/v1/probes/p/metrics"), [4, 7], [12, 21]);
    send()?;
    // Now the other source defines the tables, and a session has another field: the counts
    // continue.
    let mut other = config("xdp", false, &metrics(false));
    for direction in ["ingress", "egress"] {
        other[direction]["defines"]["WIDE"] = json!("1");
    }
    daemon.put("/v1/probes/p", &other).expect(200);
    send()?;
    check(&daemon.json("/v1/probes/p/metrics"), [12, 21], [36, 63]);
    Ok(())
}
