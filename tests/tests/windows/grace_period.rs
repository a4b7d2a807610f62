//! Grace periods while a real-time task keeps a CPU busy: no window waits for that CPU, and capabilities report it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use twinprobe_tests::hog::Hog;
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const PROBES: [&str; 3] = ["p", "q", "r"];
const HOG_TIME: Duration = Duration::from_secs(5);
/// The longest grace period at the median. The kernel leaves ordinary tasks 50 ms of each second of such a CPU, so a
/// visit may take 950 ms.
const LIMIT: Duration = Duration::from_millis(500);
/// The interval of requests for capabilities, which cost the other CPU some time.
const LOOK: Duration = Duration::from_millis(10);

/// Returns options with a script that moves to the first CPU and becomes the daemon, so that neither the busy CPU nor
/// other tests delay it.
fn on_first_cpu(directory: &Path) -> Result<DaemonOptions> {
    let path = directory.join("wrapper");
    let daemon = twinprobe_tests::binary()?;
    fs::write(&path, format!("#!/bin/sh\nexec nice -n -15 taskset -c 0 '{}' \"$@\"\n", daemon.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(DaemonOptions { binary: Some(path), ..DaemonOptions::default() })
}

fn sweep(capabilities: &Value) -> Value {
    capabilities["kernel"]["quiesce_methods"][0].clone()
}

#[test]
fn a_real_time_task_does_not_hold_up_windows() -> Result<()> {
    if thread::available_parallelism()?.get() < 2 {
        println!("a single CPU: nothing was tested");
        return Ok(());
    }
    pin_to_cpu(0)?;
    let topology = Topology::new()?;
    let temporary = tempfile::tempdir()?;
    let daemon = Daemon::start_with(topology.monitor(), &on_first_cpu(temporary.path())?)?;
    for probe in PROBES {
        daemon.put(&format!("/v1/probes/{probe}"), &counter_config("mon0", "XDP_PASS")).expect(201);
    }
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    assert_eq!(sweep(&daemon.json("/v1/capabilities"))["available"], true);

    let (mut counted, mut sent) = ([0; PROBES.len()], 0);
    let (mut late, mut waited) = (None, Vec::new());
    let hog = Hog::start(1, HOG_TIME)?;
    let until = Instant::now() + HOG_TIME - Duration::from_secs(1);
    while Instant::now() < until {
        generator.send(100)?;
        sent += 100;
        let close = |(probe, counted): (&&str, &mut u64)| {
            let document = Windows::of(&daemon, probe).close();
            let quiesce = document["window"]["quiesce_us"].as_u64().expect("a number");
            *counted += total(&document, "ingress", "packets");
            quiesce
        };
        let close = &close;
        thread::scope(|scope| {
            let closings = PROBES.iter().zip(&mut counted).map(|probe| scope.spawn(move || close(probe)));
            let closings: Vec<_> = closings.collect();
            // Capabilities report the sweep as late only until it ends, so the test has to look meanwhile.
            while !closings.iter().all(thread::ScopedJoinHandle::is_finished) {
                let capabilities = daemon.json("/v1/capabilities");
                let is_late = sweep(&capabilities)["available"] == false;
                if is_late && capabilities["kernel"]["quiesce"] == "membarrier" {
                    late = Some(capabilities);
                }
                thread::sleep(LOOK);
            }
            waited.extend(closings.into_iter().map(|closing| closing.join().expect("no panic")));
        });
    }
    drop(hog);
    assert_eq!(counted, [sent; PROBES.len()]);
    // The median counts because the kernel's own thread for grace periods may be on the busy CPU at times.
    waited.sort_unstable();
    let median = waited[waited.len() / 2];
    assert!(u128::from(median) < LIMIT.as_micros(), "{waited:?} us");
    let late = late.expect("the sweep was late at least once, and membarrier took its place");
    let reason = sweep(&late)["reason"].to_string();
    assert!(reason.contains("CPU 1"), "{reason}");
    assert_eq!(daemon.log().matches("another method waits as well").count(), 1, "said once");

    // The sweep is used again once it has ended.
    wait_for("the sweep", HOG_TIME, || {
        Windows::of(&daemon, PROBES[0]).close();
        let capabilities = daemon.json("/v1/capabilities");
        let sweeps =
            sweep(&capabilities)["available"] == true && capabilities["kernel"]["quiesce"] == "sweep";
        ensure!(sweeps, "{capabilities}");
        Ok(())
    })
}
