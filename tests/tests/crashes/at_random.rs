//! A daemon is killed at random instants of requests. The next daemon agrees with the API's
//! answers: answered requests are done, the interrupted one is done or not, nothing else is left,
//! and all other probes have counted every packet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http::{self, Address};
use twinprobe_tests::layouts::{Layout, Reading, field};
use twinprobe_tests::random::Random;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, KernelObjects, Topology, scaled};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The longest time between kills: long enough for some requests, short enough to hit each step of
/// them.
const STORM_MS: u64 = 700;
/// The time in which a daemon starts, about.
const START_MS: u64 = 150;

/// The state of a name: a probe with a variant of [`config`], or no probe.
type State = Option<u32>;

/// The states of each name that the answers allow: two if a request was cut off.
type Expected = BTreeMap<&'static str, Vec<State>>;

fn observing(mut direction: Value) -> Value {
    direction["verdict"] = json!("observe");
    direction
}

/// Returns one of two configurations that replace each other: both share only some maps, and differ
/// in hooks, directions and interfaces.
fn config(variant: u32) -> Value {
    let xdp = Layout::new(Reading::Window);
    let tc = Layout {
        hook: "tc",
        ..Layout::new(Reading::Live)
    };
    if variant == 0 {
        json!({ "interface": "mon0", "ingress": observing(xdp.direction()), "egress": observing(tc.direction()) })
    } else {
        let other = Layout {
            layout: 1,
            variant: 1,
            ..tc
        };
        json!({ "interfaces": ["mon0", "mon1"], "ingress": observing(other.direction()) })
    }
}

/// Returns a probe that is first at its hook. It must count while others change.
fn steady() -> Value {
    let mut config = Layout::new(Reading::Live).config();
    config["ingress"] = observing(config["ingress"].clone());
    config["priority"] = json!(-10);
    config
}

fn steady_count(daemon: &Daemon) -> u64 {
    field(
        &daemon.json("/v1/probes/steady/metrics"),
        "in_array",
        "/packets",
    )
}

/// Sends requests until `stop` is set or no daemon answers any more.
fn storm(
    address: &Address,
    expected: &Mutex<Expected>,
    stop: &AtomicBool,
    random: &mut Random,
) -> Result<()> {
    while !stop.load(Ordering::Acquire) {
        let name = NAMES[random.below(NAMES.len() as u64) as usize];
        let path = format!("/v1/probes/{name}");
        let set = |states: Vec<State>| {
            expected
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name, states);
        };
        let now = expected.lock().unwrap_or_else(PoisonError::into_inner)[name][0];
        let action = random.below(8);
        let (method, path, body, next) = match action {
            0..4 => (
                "PUT",
                path,
                config(action as u32 % 2).to_string(),
                Some(action as u32 % 2),
            ),
            4..6 => ("DELETE", path, String::new(), None),
            _ => ("GET", format!("{path}/metrics"), String::new(), now),
        };
        set(vec![now, next]);
        // A request without an answer may have taken effect or not, because the daemon was killed.
        let Ok(answer) = http::request(address, method, &path, &[], body.as_bytes()) else {
            return Ok(());
        };
        let right: &[u16] = match (method, now) {
            ("PUT", None) => &[201],
            ("PUT", Some(_)) => &[200],
            (_, None) => &[404],
            ("DELETE", Some(_)) => &[204],
            (_, Some(_)) => &[200],
        };
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(
            right.contains(&answer.status),
            "{method} {path} while {now:?}: {} {text}",
            answer.status
        );
        set(vec![next]);
    }
    Ok(())
}

/// Compares the probes with the earlier answers. The found state is the expected one from now on.
fn check_probes(daemon: &Daemon, expected: &mut Expected) -> Result<()> {
    for (name, states) in expected.iter_mut() {
        let answer = daemon.get(&format!("/v1/probes/{name}"));
        let found = match answer.status {
            404 => None,
            200 => {
                let status = answer.json();
                ensure!(status["state"] == "running", "{status}");
                let variant = (0..2).find(|variant| status["config"] == config(*variant));
                let variant =
                    variant.with_context(|| format!("{name} has a configuration of nobody"))?;
                let attached = status["interfaces"].as_array().map(Vec::len);
                ensure!(
                    attached == Some(2),
                    "{name}, variant {variant}: {}",
                    status["interfaces"]
                );
                daemon
                    .get(&format!("/v1/probes/{name}/metrics"))
                    .expect(200);
                Some(variant)
            }
            status => anyhow::bail!("{name}: {status}"),
        };
        ensure!(
            states.contains(&found),
            "{name} is {found:?}, not one of {states:?}"
        );
        *states = vec![found];
    }
    let listed = daemon.json("/v1/probes")["probes"]
        .as_array()
        .map_or(0, Vec::len);
    let there = expected
        .values()
        .filter(|states| states[0].is_some())
        .count();
    ensure!(
        listed == there + 3,
        "{listed} probes are listed, not {there} and those beside them"
    );
    Ok(())
}

/// The numbers of objects that a daemon holds without a crash, by the number of probes of each
/// variant.
#[derive(Default)]
struct Reference(BTreeMap<[usize; 2], [(&'static str, usize); 3]>);

impl Reference {
    fn counts(&mut self, expected: &Expected) -> Result<[(&'static str, usize); 3]> {
        let variants =
            [0, 1].map(|variant| expected.values().filter(|s| s[0] == Some(variant)).count());
        if let Some(counts) = self.0.get(&variants) {
            return Ok(*counts);
        }
        let topology = Topology::new()?;
        let options = DaemonOptions::default().argument("--detach-on-exit");
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let _bystanders = Bystanders::deploy(&daemon, &topology)?;
        daemon.put("/v1/probes/steady", &steady()).expect(201);
        for (variant, number) in variants.iter().enumerate() {
            for n in 0..*number {
                daemon
                    .put(
                        &format!("/v1/probes/v{variant}-{n}"),
                        &config(variant as u32),
                    )
                    .expect(201);
            }
        }
        let counts = KernelObjects::pinned(daemon.directories().bpffs())?.counts();
        self.0.insert(variants, counts);
        Ok(counts)
    }
}

#[test]
fn a_daemon_that_is_killed_at_any_instant_is_succeeded() -> Result<()> {
    let topology = Topology::new()?;
    let mut random = Random::new();
    let mut reference = Reference::default();
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let baseline = KernelObjects::now()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/steady", &steady()).expect(201);
    let load = generator.spawn(Load {
        rate: Some(20_000),
        ..Load::default()
    });
    let expected: Arc<Mutex<Expected>> = Arc::new(Mutex::new(
        NAMES.into_iter().map(|name| (name, vec![None])).collect(),
    ));
    let mut counted = 0;
    let kills = scaled(10, 500);
    for kill in 1..=kills {
        let stop = Arc::new(AtomicBool::new(false));
        let client = thread::spawn({
            let (address, expected) = (daemon.address(), Arc::clone(&expected));
            let (stop, mut random) = (Arc::clone(&stop), random.fork());
            move || storm(&address, &expected, &stop, &mut random)
        });
        thread::sleep(Duration::from_millis(random.below(STORM_MS)));
        let mut directories = daemon.kill()?;
        stop.store(true, Ordering::Release);
        let requests = client
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        requests.with_context(|| format!("before kill {kill}"))?;
        // Sometimes the next daemon is killed as well, while it starts.
        while random.below(4) == 0 {
            let starting =
                Daemon::spawn_in(topology.monitor(), &DaemonOptions::default(), directories)?;
            thread::sleep(Duration::from_millis(random.below(START_MS)));
            directories = starting.kill()?;
        }
        daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        let what = || format!("after kill {kill}");
        let arrived = load.arrived();
        let now = steady_count(&daemon);
        ensure!(
            now >= arrived && now >= counted,
            "{}: {now} of {arrived}, {counted} before",
            what()
        );
        counted = now;
        let mut expected = expected.lock().unwrap_or_else(PoisonError::into_inner);
        check_probes(&daemon, &mut expected).with_context(what)?;
        let bpffs = daemon.directories().bpffs().to_owned();
        let pinned = KernelObjects::pinned(&bpffs)?.counts();
        ensure!(
            pinned == reference.counts(&expected)?,
            "{}: {pinned:?}, not {:?}",
            what(),
            reference.0
        );
        baseline
            .wait_for_only(&bpffs, daemon.pid())
            .with_context(what)?;
    }
    for name in NAMES {
        daemon.delete(&format!("/v1/probes/{name}"));
    }
    let sent = load.stop()?;
    assert_eq!(steady_count(&daemon), sent, "after {kills} kills");
    bystanders.finish_and_delete(&daemon)?;
    daemon.delete("/v1/probes/steady").expect(204);
    let left = KernelObjects::pinned(daemon.directories().bpffs())?;
    assert_eq!(left.counts()[2], ("link", 0), "{left:?}");
    let (_, directories) = daemon.terminate()?;
    baseline.wait_for_only(directories.bpffs(), std::process::id())
}
