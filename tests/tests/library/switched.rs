//! Offloads that are switched while a window is open: the next window reports them, however soon it
//! ends. The window in which they were switched off also reports them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::probes;
use twinprobe_tests::wait::wait_for;
use twinprobe_tests::{Daemon, Topology};

const OFF: [&str; 10] = [
    "tso",
    "off",
    "gso",
    "off",
    "tx-udp-segmentation",
    "off",
    "txvlan",
    "off",
    "tx-vlan-stag-hw-insert",
    "off",
];

#[test]
fn an_offload_that_is_switched_is_told_by_each_window_that_it_was_on_in() -> Result<()> {
    let topology = Topology::new()?;
    let near = topology.monitor();
    near.run(
        "ip",
        &[
            "link", "add", "m-near", "type", "veth", "peer", "name", "n-near",
        ],
    )?;
    for interface in ["m-near", "n-near"] {
        near.run("ethtool", &[&["-K", interface][..], &OFF].concat())?;
        near.run("ip", &["link", "set", interface, "up"])?;
    }
    let daemon = Daemon::start(near)?;
    // Several probes share the facts about the interface.
    let names = ["packet-counter", "vlan"];
    for name in names {
        daemon
            .put(
                &format!("/v1/probes/{name}"),
                &probes::configuration(name, "m-near")?,
            )
            .expect(201);
    }
    let said = |name: &str| -> Result<Value> {
        let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
        let exact = document.get("approximate").is_none_or(Value::is_null);
        ensure!(
            exact
                || document["approximate"]
                    .as_str()
                    .is_some_and(|said| said.contains("n-near")),
            "{document}"
        );
        Ok(exact.into())
    };
    let windows = |name: &str| -> Result<[Value; 4]> {
        let before = said(name)?;
        // The end of the pair that has no probe.
        near.run("ethtool", &["-K", "n-near", "txvlan", "on"])?;
        let switched = said(name)?;
        near.run("ethtool", &["-K", "n-near", "txvlan", "off"])?;
        Ok([before, switched, said(name)?, said(name)?])
    };
    // The windows follow each other faster than the daemon looks by itself.
    for _ in 0..5 {
        assert_eq!(
            windows("packet-counter")?,
            [true.into(), false.into(), false.into(), Value::from(true)]
        );
    }
    // The status is told without a reading, within the daemon's next look.
    near.run("ethtool", &["-K", "n-near", "txvlan", "on"])?;
    for name in names {
        wait_for("the status tells of it", Duration::from_secs(60), || {
            let status = daemon.json(&format!("/v1/probes/{name}"));
            let told = &status["interfaces"][0]["approximate"];
            told.as_str().map(drop).with_context(|| status.to_string())
        })?;
    }
    Ok(())
}
