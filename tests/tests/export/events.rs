//! Event metrics: streams of the events that programs write to RINGBUF and PERF_EVENT_ARRAY,
//! complete and counted.

use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::event_scene::{EVENTS, LINES, Scene, account, config};
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, KernelObjects, Topology, scaled};

#[test]
fn each_packet_is_an_event_decoded_by_its_type() -> Result<()> {
    for (defines, kind) in [("", "ringbuf"), ("PERF", "perf_event_array")] {
        let scene = Scene::new(defines)?;
        let report = scene
            .daemon
            .post("/v1/validate", &config(defines))
            .expect(200)
            .json();
        assert_eq!(report["metrics"]["ingress"][0]["type"], kind);
        let mut stream = scene.stream("")?;
        let count = scaled(3000, 3000);
        let spread = Spread::default();
        scene.generator()?.send(count)?;
        for n in 0..count {
            let mut line = stream.json()?;
            let time = line["time"].take();
            assert!(
                time.as_str()
                    .is_some_and(|time| time.len() == 30 && time.ends_with('Z')),
                "{time}"
            );
            let cpu = line["cpu"].take();
            assert_eq!(cpu.is_u64(), kind == "perf_event_array", "{cpu}");
            let (address, port) = (
                n % u64::from(spread.addresses),
                n / u64::from(spread.addresses),
            );
            let event = json!({
                "serial": n,
                "from": { "address": format!("198.18.0.{address}"), "port": 1024 + port },
                "label": "packet",
                "numbers": [-1, 2],
                "length": 60
            });
            line.as_object_mut()
                .context("an object")?
                .retain(|_, value| !value.is_null());
            assert_eq!(
                line,
                json!({ "direction": "ingress", "metric": "packets", "event": event })
            );
        }
        let lost = if kind == "ringbuf" {
            Value::Null
        } else {
            json!(0)
        };
        let expected = json!({ "direction": "ingress", "metric": "packets", "delivered": count, "lost": lost, "missed": 0, "clients": 1 });
        assert_eq!(scene.status(), expected);
        assert_eq!(scene.lost_by_program(), 0);
        let document = scene.daemon.json("/v1/probes/p/metrics");
        assert!(
            document["ingress"].get("packets").is_none(),
            "events are no part of the document: {document}"
        );
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// Events without a listener stay in the ring; the first client gets them, in order.
#[test]
fn events_wait_for_their_first_reader() -> Result<()> {
    let scene = Scene::new("")?;
    let count = scaled(100_000, 200_000);
    scene.generator()?.send(count)?;
    assert_eq!(scene.status()["delivered"], 0);
    let (serials, lost) = account(&mut scene.stream("")?, count)?;
    assert_eq!((serials, lost), ((0..count).collect(), 0));
    assert_eq!(scene.status()["delivered"], count);
    scene.bystanders.finish()
}

#[test]
fn without_a_type_events_are_hex_with_a_warning() -> Result<()> {
    let scene = Scene::new("")?;
    let mut untyped = config("TAIL=2");
    untyped["ingress"]["metrics"] = json!([{ "name": "packets", "map": "events" }]);
    let status = scene
        .daemon
        .put("/v1/probes/p", &untyped)
        .expect(200)
        .json();
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("shown in hex"), "{warnings}");
    let mut stream = scene.stream("")?;
    scene.generator()?.send(1)?;
    assert_eq!(
        stream.json()?["event"],
        "0x0000000000000000c61200000400000070 61636b657400ffff02003c0000000001".replace(' ', "")
    );
    // The bytes that the type does not cover are shown.
    scene
        .daemon
        .put("/v1/probes/p", &config("TAIL=2"))
        .expect(200);
    let mut stream = scene.stream("")?;
    scene.generator()?.send(1)?;
    let line = stream.json()?;
    assert_eq!(
        (&line["event"]["serial"], &line["rest"]),
        (&json!(0), &json!("0x0001"))
    );
    scene.bystanders.finish()
}

#[test]
fn server_sent_events_by_accept() -> Result<()> {
    let scene = Scene::new("")?;
    let mut stream = Stream::open(&scene.daemon, EVENTS, "text/event-stream")?;
    assert!(
        stream
            .headers
            .to_lowercase()
            .contains("content-type: text/event-stream\r\n"),
        "{}",
        stream.headers
    );
    let mut lines = scene.stream("")?;
    assert!(
        lines
            .headers
            .to_lowercase()
            .contains("content-type: application/x-ndjson\r\n"),
        "{}",
        lines.headers
    );
    scene.generator()?.send(1000)?;
    for n in 0..1000 {
        let data = stream.line()?.context("data")?;
        let event: Value =
            serde_json::from_str(data.strip_prefix("data: ").context("a data field")?)?;
        assert_eq!(event["event"]["serial"], n);
        assert_eq!(stream.line()?.as_deref(), Some(""));
        assert_eq!(lines.json()?, event);
    }
    let refused = scene
        .daemon
        .request("GET", EVENTS, &[("accept", "text/html")], b"")
        .expect(406);
    assert!(
        refused.text().contains("text/event-stream"),
        "{}",
        refused.text()
    );
    scene.bystanders.finish()
}

#[test]
fn a_filter_takes_one_metric_and_leaves_the_others() -> Result<()> {
    let scene = Scene::new("")?;
    let mut both = config("OTHERS");
    let others = json!({ "name": "others", "map": "others", "type": "struct event" });
    both["ingress"]["metrics"]
        .as_array_mut()
        .context("a list")?
        .push(others);
    scene.daemon.put("/v1/probes/p", &both).expect(200);
    let mut odd = scene.stream("?metric=others")?;
    scene.generator()?.send(2000)?;
    let (serials, _) = account(&mut odd, 1000)?;
    assert_eq!(
        serials,
        (0..2000).filter(|n| n % 2 == 1).collect::<Vec<u64>>()
    );
    // The events of the other ring are still there, because no client has read that ring.
    let (serials, _) = account(&mut scene.stream("")?, 1000)?;
    assert_eq!(
        serials,
        (0..2000).filter(|n| n % 2 == 0).collect::<Vec<u64>>()
    );
    let refused = scene
        .daemon
        .get(&format!("{EVENTS}?metric=lost"))
        .expect(404);
    assert!(
        refused.text().contains("it has packets, others"),
        "{}",
        refused.text()
    );
    scene.daemon.get("/v1/probes/q/events").expect(404);
    scene.bystanders.finish()
}

/// A client that does not read misses events, is told how many, and costs the other clients none.
#[test]
fn a_slow_client_loses_its_own_events_only() -> Result<()> {
    let scene = Scene::new("")?;
    let count = 250_000;
    let mut slow = scene.stream("")?;
    let mut others = [scene.stream("")?, scene.stream("")?];
    let load = Load {
        count: Some(count),
        rate: Some(100_000),
        ..Load::default()
    };
    let running = scene.generator()?.spawn(load);
    thread::scope(|scope| {
        let readers: Vec<_> = others
            .iter_mut()
            .map(|stream| scope.spawn(|| account(stream, count)))
            .collect();
        for reader in readers {
            let (serials, lost) = reader.join().expect("reads")?;
            assert_eq!(lost, 0);
            assert!(serials.into_iter().eq(0..count));
        }
        anyhow::Ok(())
    })?;
    assert_eq!(running.join()?, count);
    let (serials, lost) = account(&mut slow, count)?;
    assert!(lost > 0 && serials.is_sorted(), "{lost} lost");
    assert_eq!(scene.status()["missed"], lost);
    assert_eq!(scene.lost_by_program(), 0);
    // The slow client continues like the others.
    scene.generator()?.send(10)?;
    assert_eq!(account(&mut slow, 10)?, ((count..count + 10).collect(), 0));
    scene.bystanders.finish()
}

#[test]
fn a_client_that_hangs_up_leaves_nothing() -> Result<()> {
    for defines in ["", "PERF"] {
        let scene = Scene::new(defines)?;
        let mut generator = scene.generator()?;
        let round = |generator: &mut Generator| {
            let mut streams = [scene.stream("")?, scene.stream("")?, scene.stream("")?];
            generator.send(100)?;
            streams
                .iter_mut()
                .try_for_each(|stream| stream.json().map(drop))?;
            drop(streams);
            scene.wait_for("clients are left", |scene| scene.status()["clients"] == 0)
        };
        round(&mut generator)?;
        let files = scene.daemon.open_files();
        for _ in 0..scaled(10, 500) {
            round(&mut generator)?;
        }
        scene.wait_for("descriptors are left", |scene| {
            scene.daemon.open_files() <= files
        })?;
        scene.bystanders.finish()?;
    }
    Ok(())
}

#[test]
fn a_stream_ends_with_its_probe() -> Result<()> {
    let scene = Scene::new("")?;
    let daemon = &scene.daemon;
    for change in ["replace", "delete"] {
        let mut stream = scene.stream("")?;
        scene.generator()?.send(1000)?;
        match change {
            "replace" => daemon.put("/v1/probes/p", &config("PERF")).expect(200),
            _ => daemon.delete("/v1/probes/p").expect(204),
        };
        // The client gets the events that were in the ring before the change.
        let (serials, lost) = account(&mut stream, 1000)?;
        assert_eq!((serials, lost), ((0..1000).collect(), 0), "{change}");
        assert_eq!(stream.line()?, None, "{change}");
    }
    daemon.get(EVENTS).expect(404);
    scene.bystanders.finish()
}

#[test]
fn a_daemon_that_stops_ends_its_streams() -> Result<()> {
    let Scene {
        topology,
        daemon,
        mut bystanders,
    } = Scene::new("")?;
    let mut stream = Stream::open(&daemon, EVENTS, LINES)?;
    let mut idle = Stream::open(&daemon, EVENTS, "text/event-stream")?;
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    bystanders.check()?;
    let (status, _) = daemon.terminate()?;
    assert!(status.success(), "{status}");
    // Both streams have a proper end: a stream without an end would be cut off at the daemon's time
    // limit.
    account(&mut stream, 10)?;
    assert_eq!(stream.line()?, None);
    while idle.line()?.is_some() {}
    Ok(())
}

/// Records of odd sizes fill the ring many times: every record around the end of the ring is whole.
#[test]
fn records_survive_the_end_of_the_ring() -> Result<()> {
    for defines in ["RING=4096 DISCARD=3", "RING=5000 TAIL=14", "PERF TAIL=401"] {
        let scene = Scene::new(defines)?;
        let mut stream = scene.stream("")?;
        let mut generator = scene.generator()?;
        let mut seen = 0;
        for _ in 0..scaled(30, 1000) {
            generator.send(37)?;
            let (serials, lost) = account(&mut stream, 37)?;
            assert_eq!(
                (serials, lost),
                ((seen..seen + 37).collect(), 0),
                "{defines}"
            );
            seen += 37;
        }
        assert_eq!(scene.lost_by_program(), 0);
        scene.bystanders.finish()?;
    }
    Ok(())
}

/// Delivered and lost events of a perf ring that overflows add up, in the status and in the stream.
#[test]
fn the_kernel_s_losses_are_counted_exactly() -> Result<()> {
    let scene = Scene::new("PERF")?;
    let count = scaled(100_000, 1_000_000);
    let mut generator = scene.generator()?;
    generator.send(count)?;
    let lost = scene.status()["lost"]
        .as_u64()
        .context("perf rings count")?;
    assert!(lost > 0 && lost < count, "{lost} of {count}");
    assert_eq!(scene.lost_by_program(), lost);
    let mut stream = scene.stream("")?;
    let waited = count - lost;
    let (serials, told) = account(&mut stream, waited)?;
    assert_eq!((serials.len() as u64, told), (waited, 0));
    // A ring reports its losses with the next event that fits, so each CPU must write one.
    let cpus = thread::available_parallelism()?.get();
    for cpu in 0..cpus {
        let options = GeneratorOptions {
            cpu: Some(cpu),
            ..GeneratorOptions::default()
        };
        Generator::new(scene.topology.generator(), "gen0", options)?.send(64)?;
    }
    let more = 64 * cpus as u64;
    let (serials, told) = account(&mut stream, lost + more)?;
    assert_eq!((serials.len() as u64, told), (more, lost));
    let status = scene.status();
    assert_eq!(
        (&status["delivered"], &status["lost"]),
        (&json!(waited + more), &json!(lost))
    );
    scene.bystanders.finish()
}

/// A ring buffer does not count lost events; the program's own counter does.
#[test]
fn a_full_ring_keeps_the_oldest() -> Result<()> {
    let scene = Scene::new("RING=4096")?;
    scene.generator()?.send(1000)?;
    let lost = scene.lost_by_program().as_u64().context("a counter")?;
    let (serials, told) = account(&mut scene.stream("")?, 1000 - lost)?;
    assert!(lost > 0 && told == 0 && serials.into_iter().eq(0..1000 - lost));
    assert_eq!(scene.status()["lost"], Value::Null);
    scene.bystanders.finish()
}

#[test]
fn mistakes_are_named() -> Result<()> {
    let scene = Scene::new("")?;
    let before = scene.daemon.json("/v1/probes");
    for (metric, field, words) in [
        (json!({ "snapshot": true }), "snapshot", "streamed"),
        (json!({ "init": true }), "init", "streamed"),
        (json!({ "agg": "sum" }), "agg", "streamed"),
        (json!({ "export": false }), "export", "streamed"),
        (
            json!({ "type": "struct even" }),
            "type",
            "it knows struct bpf_map_def",
        ),
        (
            json!({ "type": "struct even" }),
            "type",
            "struct even *unused __attribute__((unused));",
        ),
        (json!({ "type": "report" }), "type", "knows no type report"),
        (
            json!({ "type": "struct event;" }),
            "type",
            "is not a name of a C type",
        ),
        (
            json!({ "map": "lost", "type": "struct event" }),
            "type",
            "type is for events",
        ),
    ] {
        let mut config = config("");
        let mut wanted = json!({ "name": "packets", "map": "events" });
        wanted
            .as_object_mut()
            .context("an object")?
            .extend(metric.as_object().context("an object")?.clone());
        config["ingress"]["metrics"] = json!([wanted]);
        let problem = scene.daemon.put("/v1/probes/p", &config).expect(422).json();
        let finding = &problem["errors"][0];
        assert_eq!(finding["stage"], "config", "{problem}");
        assert_eq!(
            finding["field"],
            format!("ingress.metrics[0].{field}"),
            "{problem}"
        );
        let known = words.replace("struct bpf_map_def", "struct endpoint, struct event");
        assert!(
            finding["message"]
                .as_str()
                .is_some_and(|text| text.contains(&known)),
            "{problem}"
        );
    }
    let mut merged = config("");
    merged["ingress"]["metrics"] =
        json!([{ "name": "n", "map": "events", "snapshot": true, "merge": "max" }]);
    let problem = scene.daemon.put("/v1/probes/p", &merged).expect(422).json();
    let fields: Vec<_> = problem["errors"]
        .as_array()
        .context("a list")?
        .iter()
        .map(|f| &f["field"])
        .collect();
    assert_eq!(
        fields,
        ["ingress.metrics[0].snapshot", "ingress.metrics[0].merge"]
    );
    assert_eq!(scene.daemon.json("/v1/probes"), before);
    let plain = twinprobe_tests::sample::counter_config("mon0", "XDP_PASS");
    scene.daemon.put("/v1/probes/q", &plain).expect(201);
    let refused = scene.daemon.get("/v1/probes/q/events").expect(404);
    assert!(
        refused.text().contains("has no event metrics"),
        "{}",
        refused.text()
    );
    scene.bystanders.finish()
}

#[test]
fn nothing_is_left_of_a_probe_with_events() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let round = |name: &str| {
        let path = format!("/v1/probes/{name}");
        daemon.put(&path, &config("")).expect(201);
        let mut ring = Stream::open(&daemon, &format!("{path}/events"), LINES)?;
        daemon.put(&path, &config("PERF")).expect(200);
        assert_eq!(ring.line()?, None);
        let mut perf = Stream::open(&daemon, &format!("{path}/events"), "text/event-stream")?;
        daemon.delete(&path).expect(204);
        assert_eq!(perf.line()?, None);
        anyhow::Ok(())
    };
    round("warm")?;
    let of_daemon = || KernelObjects::of_process(daemon.pid());
    let pins = daemon.directories().bpffs().to_owned();
    let (all, held, files) = (KernelObjects::now()?, of_daemon()?, daemon.open_files());
    let pinned = KernelObjects::pinned(&pins)?;
    for n in 0..scaled(30, 500) {
        round(&format!("p{n}"))?;
    }
    // The daemon holds the same objects as before, and no other process holds a new object.
    wait_for("something is left", PATIENCE, || {
        ensure!(
            of_daemon()? == held && KernelObjects::pinned(&pins)? == pinned,
            "objects"
        );
        ensure!(
            daemon.open_files() <= files,
            "{} descriptors, not {files}",
            daemon.open_files()
        );
        Ok(())
    })?;
    all.wait_for_only(&pins, daemon.pid())?;
    bystanders.finish()
}

#[test]
fn the_client_prints_lines_until_the_probe_is_gone() -> Result<()> {
    let scene = Scene::new("")?;
    scene.generator()?.send(100)?;
    let output = thread::scope(|scope| {
        let client = scope.spawn(|| scene.daemon.client(&["events", "p", "--metric", "packets"]));
        scene.wait_for("the client did not come", |scene| {
            scene.status()["delivered"] == 100
        })?;
        scene.daemon.delete("/v1/probes/p").expect(204);
        client.join().expect("runs")
    })?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8(output.stdout)?.lines().count(), 100);
    let refused = scene.daemon.client(&["events", "p"])?;
    assert_eq!(refused.status.code(), Some(1));
    scene.bystanders.finish()
}
