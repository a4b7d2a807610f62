//! Samples: the dispatcher chooses packets at random for one probe. Another probe sees all packets.

use anyhow::Result;
use serde_json::json;
use twinprobe_tests::attachments::tc_counter;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::{Daemon, Topology};

use crate::scene::send_and_count;

const PACKETS: u64 = 3_000;

#[test]
fn one_packet_in_four() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut at_tc = counter_config("mon0", "0");
    at_tc["ingress"]["hook"] = json!("tc");
    at_tc["ingress"]["source"] = json!(tc_counter("0"));
    for (hook, mut config) in [("xdp", counter_config("mon0", "XDP_PASS")), ("tc", at_tc)] {
        config["ingress"]["sample"] = json!(4);
        daemon
            .put(&format!("/v1/probes/{hook}"), &config)
            .expect(201);
    }
    daemon
        .put("/v1/probes/all", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let counted = |probe: &str| {
        let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
        total(&document, "ingress", "packets")
    };
    send_and_count(topology.generator(), "gen0", PACKETS, || counted("all"))?;
    for hook in ["xdp", "tc"] {
        let count = counted(hook);
        // Six standard deviations.
        assert!(
            count.abs_diff(PACKETS / 4) < 143,
            "{hook}: {count} of {PACKETS}"
        );
    }
    Ok(())
}
