//! A program that reads bytes of its stack before it writes them finds zeros, not data of the
//! kernel.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::window;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology};

const SOURCE: &str = include_str!("../../bpf/stack.bpf.c");
const PACKETS: u64 = 1000;

fn found(hook: &str, defines: &Value) -> Result<Value> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let direction = json!({
        "hook": hook, "source": SOURCE, "defines": defines, "metrics": [window("found", "found")]
    });
    let config = json!({ "interface": "mon0", "ingress": direction });
    daemon.put("/v1/probes/p", &config).expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(PACKETS)?;
    let document = daemon.get("/v1/probes/p/metrics").expect(200).json();
    Ok(document["ingress"]["found"]["entries"][0]["value"].clone())
}

#[test]
fn what_was_not_written_is_zero_at_xdp() -> Result<()> {
    assert_eq!(
        found("xdp", &json!({}))?,
        json!({ "packets": PACKETS, "remains": 0 })
    );
    assert_eq!(
        found("xdp", &json!({ "BYTES": "1" }))?,
        json!({ "packets": PACKETS, "remains": 0 })
    );
    Ok(())
}

#[test]
fn what_was_not_written_is_zero_at_tc() -> Result<()> {
    assert_eq!(
        found("tc", &json!({ "TC": "1" }))?,
        json!({ "packets": PACKETS, "remains": 0 })
    );
    Ok(())
}
