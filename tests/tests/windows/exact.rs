//! Exactness: collectors get every packet once, in any order of their requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::random::Random;
use twinprobe_tests::sample::{total, with_frags};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Spread};
use twinprobe_tests::wait::EndOnDrop;
use twinprobe_tests::windows::{Collector, Windows, config, packets};
use twinprobe_tests::{
    Bystanders, Daemon, DaemonOptions, Directories, Stand, Topology, probes, scaled, timed,
};

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Returns the configuration of the ready-made probe, whose documents are large.
fn flow_features(window: &Value) -> Result<Value> {
    let mut config = probes::configuration("flow-features", "mon0")?;
    config["name"] = json!("flows");
    config["window"] = window.clone();
    // The probe runs before the sink, which drops packets so that the stack does not limit the
    // rate.
    config["priority"] = json!(-1);
    Ok(config)
}

fn flow_packets(document: &Value) -> u64 {
    let entries = document["ingress"]["flows"]["entries"]
        .as_array()
        .expect("entries");
    entries
        .iter()
        .map(|entry| entry["value"]["IN_PKTS"].as_u64().expect("IN_PKTS"))
        .sum()
}

/// Returns a probe that drops the packets that other probes have counted.
fn sink() -> Value {
    let mut sink = config(&json!({}), &[]);
    sink["ingress"]["metrics"] = json!([{ "name": "live", "map": "live" }]);
    sink["priority"] = json!(1000);
    with_frags(sink)
}

/// Collectors hang up in the middle of answers, to GETs of windows and to POSTs that close them,
/// and connect again.
#[test]
fn connections_that_are_cut_lose_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let room = 8_u64 << 30;
    let options = DaemonOptions::default()
        .argument("--retain-bytes")
        .argument(room.to_string());
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let bystanders = Bystanders::deploy_at(&daemon, &topology, Stand::FRAGS)?;
    let mut window = json!({ "interval": "300ms", "retain": 100_000, "retain_bytes": room });
    daemon
        .put("/v1/probes/flows", &flow_features(&window)?)
        .expect(201);
    daemon.put("/v1/probes/sink", &sink()).expect(201);
    // This many flows make documents that are larger than the buffers of sockets.
    let spread = Spread {
        addresses: scaled(16, 64) as u32,
        ..Spread::default()
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    let generator = Generator::new(topology.generator(), "gen0", options)?;
    let load = generator.spawn(Load {
        rate: Some(500_000),
        ..Load::default()
    });
    let mut collector = Collector::new(Windows::of(&daemon, "flows"), None);
    let windows = collector.windows.clone();
    let wanted = scaled(20, 100);
    let (cut, newest, ended) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (mut random, mut sum) = (Random::new(), 0);
    let size = windows.close().to_string().len() as u64;
    thread::scope(|scope| {
        let hang_up = |mut random: Random| -> Result<()> {
            while !ended.load(Ordering::Acquire) {
                // The answer for a window that was acknowledged meanwhile is short.
                let (seq, bytes) = (newest.load(Ordering::Acquire), random.below(size) as usize);
                let done = match random.below(8) {
                    0 => windows.read_and_hang_up("POST", None, bytes)?,
                    _ => windows.read_and_hang_up("GET", Some(seq), bytes)?,
                };
                cut.fetch_add(u64::from(done && bytes > 1000), Ordering::AcqRel);
            }
            Ok(())
        };
        let others: Vec<_> = (0..3)
            .map(|_| random.fork())
            .map(|random| scope.spawn(move || hang_up(random)))
            .collect();
        let end = EndOnDrop(&ended);
        while cut.load(Ordering::Acquire) < wanted {
            for window in windows
                .try_list(&format!("after={}&wait=60", collector.taken))?
                .windows
            {
                newest.store(window.seq, Ordering::Release);
                for _ in 0..random.below(3) {
                    let bytes = random.below(size) as usize;
                    let done = windows.read_and_hang_up("GET", Some(window.seq), bytes)?;
                    cut.fetch_add(u64::from(done), Ordering::AcqRel);
                }
            }
            collector.round(0.0, |document| sum += flow_packets(document))?;
        }
        drop(end);
        others.into_iter().try_for_each(|other| {
            other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    let sent = load.stop()?;
    // A long interval ends the stream of windows, so that reading them also ends on a slow machine.
    window["interval"] = json!("1h");
    daemon
        .put("/v1/probes/flows", &flow_features(&window)?)
        .expect(200);
    windows.close();
    while collector.round(0.0, |document| sum += flow_packets(document))? > 0 {}
    println!(
        "{} windows, {} cuts, {sent} packets",
        collector.taken,
        cut.into_inner()
    );
    assert_eq!(sum, sent);
    assert_eq!(
        total(&daemon.json("/v1/probes/sink/metrics"), "ingress", "live"),
        sent
    );
    bystanders.finish()
}

/// Collectors with different paces get every window once.
#[test]
fn two_collectors_get_every_window_once() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let names = ["archive", "billing"];
    let window = json!({ "interval": "20ms", "collectors": names, "retain": 10_000 });
    daemon
        .put("/v1/probes/p", &config(&window, &[]))
        .expect(201);
    let windows = Windows::of(&daemon, "p");
    let mut random = Random::new();
    let load = generator(&topology)?.spawn(Load {
        count: Some(scaled(4_000_000, 200_000_000)),
        ..Load::default()
    });
    let (ended, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let (ended, last) = (&ended, &last);
    let sums = thread::scope(|scope| {
        let collectors = names.map(|name| {
            let (mut random, windows) = (random.fork(), windows.clone());
            scope.spawn(move || -> Result<u64> {
                let mut collector = Collector::new(windows, Some(name));
                let mut sum = 0;
                while !ended.load(Ordering::Acquire)
                    || collector.taken < last.load(Ordering::Acquire)
                {
                    collector.round(0.1, |document| sum += packets(document))?;
                    thread::sleep(Duration::from_millis(random.below(100)));
                    let left = collector
                        .windows
                        .try_list(&format!("collector={name}"))?
                        .seqs();
                    ensure!(
                        left.first().is_none_or(|seq| *seq == collector.taken + 1),
                        "{name}: {left:?}"
                    );
                }
                Ok(sum)
            })
        });
        let end = EndOnDrop(ended);
        let sent = load.join();
        let seq = windows.close()["window"]["seq"].as_u64().context("seq");
        last.store(seq?, Ordering::Release);
        drop(end);
        let sums = collectors.map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        anyhow::Ok((sent?, sums))
    })?;
    let (sent, sums) = sums;
    for (sum, name) in sums.into_iter().zip(names) {
        assert_eq!(sum?, sent, "{name}");
    }
    let list = windows.list("after=0");
    let last = last.load(Ordering::Acquire);
    assert!(last > 10, "only {last} windows");
    assert!(
        list.lost == 0 && list.windows.iter().all(|window| window.seq > last),
        "{list:?}"
    );
    bystanders.finish()
}

/// Closes windows at the shortest interval under full load and checks that no packet is lost.
/// Returns the number of windows a second.
fn a_thousand_a_second(duration: Duration) -> Result<f64> {
    let topology = Topology::new()?;
    let directories = Directories::with_state_in_memory(8 << 30)?.into();
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut window = json!({ "interval": "1ms", "retain": 100_000, "retain_bytes": 4_u64 << 30 });
    daemon
        .put("/v1/probes/p", &config(&window, &[("KEYS", "1")]))
        .expect(201);
    let windows = Windows::of(&daemon, "p");
    let started = Instant::now();
    let load = generator(&topology)?.spawn(Load {
        duration: Some(duration),
        ..Load::default()
    });
    let sent = load.join()?;
    let last = windows.close()["window"]["seq"].as_u64().context("seq")?;
    let rate = last as f64 / started.elapsed().as_secs_f64();
    // A long interval ends the stream of windows, so that the reading ends.
    window["interval"] = json!("1h");
    daemon
        .put("/v1/probes/p", &config(&window, &[("KEYS", "1")]))
        .expect(200);
    let list = windows.list("");
    assert_eq!(list.lost, 0);
    let mut collector = Collector::new(windows, None);
    let mut sum = 0;
    while collector.round(0.0, |document| sum += packets(document))? > 0 {}
    println!(
        "{rate:.0} windows/s, {sent} packets in {} windows",
        collector.taken
    );
    assert_eq!(sum, sent);
    assert!(last > 20, "only {last} windows");
    bystanders.finish()?;
    Ok(rate)
}

/// The shortest interval costs no packet under full load.
#[test]
fn a_thousand_windows_a_second_count_every_packet_once() -> Result<()> {
    a_thousand_a_second(Duration::from_secs(scaled(2, 60))).map(drop)
}

#[timed(
    "it measures how many windows a second there are beside a load that takes one of two processors"
)]
fn hundreds_of_windows_a_second_under_full_load() -> Result<()> {
    let rate = a_thousand_a_second(Duration::from_secs(8))?;
    ensure!(rate > 200.0, "{rate:.0} windows/s");
    Ok(())
}
