//! Expedited grace periods: attaching at TCX need not wait for each interface. Afterwards the
//! machine's switch for this has its old value, even if the daemon was killed meanwhile.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::attachments::tc_counter;
use twinprobe_tests::http::Response;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, alone, veth_pair};

const SWITCH: &str = "/sys/kernel/rcu_expedited";
const NOTE: &str = "/run/twinprobe/rcu_expedited";
const PROBE: &str = "/v1/probes/p";
/// The number of interfaces beside the two of the topology.
const INTERFACES: usize = 62;

fn switch() -> Result<String> {
    Ok(fs::read_to_string(SWITCH)?.trim().to_owned())
}

/// Waits until the switch is off. Daemons of other tests on this machine may need the switch for a
/// moment.
fn is_off() -> Result<()> {
    wait_for("the switch is off", PATIENCE, || {
        ensure!(switch()? == "0", "it is on");
        Ok(())
    })
}

/// Turns the switch on as an operator does, but only while no daemon makes a change: the end of a
/// change restores the switch. A daemon also makes changes after an answer, when it looks for
/// interfaces.
fn turn_on() -> Result<()> {
    let note = File::open(NOTE)?;
    note.lock()?;
    is_off()?;
    fs::write(SWITCH, "1")?;
    Ok(note.unlock()?)
}

fn config() -> serde_json::Value {
    let metrics = json!([{ "name": "packets", "map": "packets" }]);
    json!({ "interfaces": ["mon*"], "ingress": { "hook": "tc", "source": tc_counter("-1"), "metrics": metrics } })
}

#[alone("every daemon turns the switch of the machine, and others would delay both ways")]
fn many_interfaces_do_not_wait_for_a_grace_period_each() -> Result<()> {
    let topology = Topology::new()?;
    for number in 2..INTERFACES + 2 {
        veth_pair(
            topology.generator(),
            &format!("gen{number}"),
            topology.monitor(),
            &format!("mon{number}"),
        )?;
    }
    // A daemon that a test has killed for good may have left it on.
    fs::write(SWITCH, "0")?;
    let change = |choice: &str| -> Result<(Duration, Duration)> {
        let options = DaemonOptions::default()
            .argument("--expedite")
            .argument(choice);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let timed = |status: u16, request: &dyn Fn() -> Response| {
            let begun = Instant::now();
            request().expect(status);
            begun.elapsed()
        };
        let mut times = (Duration::ZERO, Duration::ZERO);
        // The first time the source is compiled, the second time it is known.
        for _ in 0..2 {
            times.0 = timed(201, &|| daemon.put(PROBE, &config()));
            let status = daemon.json(PROBE);
            let attached = status["interfaces"].as_array().map_or(0, Vec::len);
            ensure!(
                attached == INTERFACES + 2,
                "{attached} attachments: {status}"
            );
            times.1 = timed(204, &|| daemon.delete(PROBE));
            is_off()?;
            ensure!(
                fs::read(NOTE).unwrap_or_default().is_empty(),
                "the note is still there"
            );
        }
        Ok(times)
    };
    let (slow, fast) = (change("never")?, change("always")?);
    ensure!(
        fast.0 * 2 < slow.0,
        "a PUT took {:?} instead of {:?}",
        fast.0,
        slow.0
    );
    ensure!(
        fast.1 * 2 < slow.1,
        "a DELETE took {:?} instead of {:?}",
        fast.1,
        slow.1
    );
    Ok(())
}

/// Starts a daemon that dies while a PUT makes its change.
fn die(topology: &Topology) -> Result<Daemon> {
    let options = DaemonOptions::default()
        .argument("--expedite")
        .argument("always");
    // The start lists the stored probes in a first change. The PUT is the second change.
    let dying = options.environment("TWINPROBE_CRASH_AT", "expedited:2");
    let daemon = Daemon::start_with(topology.monitor(), &dying)?;
    let json = [("content-type", "application/json")];
    let died = daemon.try_request("PUT", PROBE, &json, config().to_string().as_bytes());
    ensure!(died.is_err(), "the daemon lives: {died:?}");
    Ok(daemon)
}

#[alone("every daemon turns the switch of the machine")]
fn the_next_daemon_turns_the_switch_back() -> Result<()> {
    let topology = Topology::new()?;
    // A daemon that a test has killed for good may have left it on.
    fs::write(SWITCH, "0")?;
    let never = DaemonOptions::default()
        .argument("--expedite")
        .argument("never");
    let daemon = die(&topology)?;
    ensure!(switch()? == "1", "the switch is off already");
    let daemon = daemon.restart(libc::SIGKILL, &never)?;
    is_off()?;
    daemon.put(PROBE, &config()).expect(201);
    drop(daemon);

    // The next daemon may use other directories, and so may an earlier one.
    let beside = Daemon::start(topology.sink())?;
    let dead = die(&topology)?;
    ensure!(switch()? == "1", "the switch is off already");
    let other = Daemon::start_with(topology.generator(), &never)?;
    is_off()?;
    let dead_too = die(&topology)?;
    beside
        .put(
            PROBE,
            &json!({ "interface": "lo", "ingress": { "hook": "tc", "source": tc_counter("-1") } }),
        )
        .expect(201);
    is_off()?;

    // A switch that the operator has turned on stays on.
    turn_on()?;
    let dead_again = die(&topology)?;
    drop((beside, other));
    let last = Daemon::start_with(topology.generator(), &never)?;
    let found = switch()?;
    fs::write(SWITCH, "0")?;
    ensure!(found == "1", "the switch was the operator's");
    drop((dead, dead_too, dead_again, last));
    Ok(())
}
