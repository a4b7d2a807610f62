//! An update of the DaemonSet: one pod after the other ends and begins again, under traffic.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::Fleet;

#[test]
fn the_exchange_of_every_pod_loses_no_packet_and_changes_no_probe() -> Result<()> {
    let mut fleet = Fleet::new(3)?;
    fleet.apply("first", &json!({}))?;
    let before = fleet.reaches("complete")?;
    for at in 0..3 {
        fleet.nodes.iter_mut().try_for_each(|node| node.send(500))?;
        fleet.nodes[at].exchange_daemon(1000)?;
        fleet.start_agent(at)?;
        fleet.nodes.iter_mut().try_for_each(|node| node.send(500))?;
        // Kubernetes takes the next pod when this one is ready.
        wait_for("the daemon is ready", PATIENCE, || {
            let ready = fleet.nodes[at].daemon().get("/readyz");
            ensure!(ready.status == 200, "{ready:?}");
            Ok(())
        })?;
    }
    // A rollout continues after the exchange.
    ensure!(
        fleet.found() == vec![("first".to_owned(), 1); 3],
        "{:?}",
        fleet.found()
    );
    let status = fleet.object()?["status"].clone();
    ensure!(
        status["revision"] == before["revision"] && status["counts"]["running"] == 3,
        "{status:#}"
    );
    for node in &fleet.nodes {
        let (counted, sent) = node.counted()?;
        ensure!(
            counted == sent,
            "{}: {counted} packets of {sent}",
            node.name
        );
    }
    fleet.apply("second", &json!({}))?;
    fleet
        .reaches("complete")
        .context("a rollout after the update")?;
    Ok(())
}
