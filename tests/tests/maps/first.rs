//! The test that tests/README.md shows as one to copy.

use anyhow::Result;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology};

#[test]
fn a_window_has_each_packet_once() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(1_000)?;
    let window = daemon.json("/v1/probes/p/metrics");
    assert_eq!(total(&window, "ingress", "packets"), 1_000);
    Ok(())
}
