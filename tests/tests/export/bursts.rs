//! Events that come faster than they are rendered.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::event_scene::Scene;

/// Bursts that fill a small ring many times: each event is received in order or counted as lost.
/// This includes events that were copied out of the ring and not yet rendered when the probe is
/// deleted.
#[test]
fn events_of_bursts_are_received_or_counted() -> Result<()> {
    for defines in ["RING=65536", "PERF"] {
        let scene = Scene::new(defines)?;
        let mut stream = scene.stream("")?;
        let mut generator = scene.generator()?;
        // After rendering, all of them are fewer bytes than may wait for a client.
        let (bursts, burst) = (3, 20_000);
        for _ in 0..bursts {
            generator.send(burst)?;
        }
        let lost = scene.lost_by_program().as_u64().context("a counter")?;
        let sent = bursts * burst;
        scene.wait_for("events are left", |scene| {
            scene.status()["delivered"] == sent - lost
        })?;
        assert_eq!(scene.status()["missed"], 0);
        scene.daemon.delete("/v1/probes/p").expect(204);
        let (mut received, mut last) = (0, None);
        while let Some(line) = stream.line()? {
            let event: Value = serde_json::from_str(&line)?;
            if let Some(serial) = event["event"]["serial"].as_u64() {
                ensure!(last < Some(serial), "{serial} after {last:?}, {defines}");
                (received, last) = (received + 1, Some(serial));
            }
        }
        assert_eq!(received + lost, sent, "{defines}");
        scene.bystanders.finish()?;
    }
    Ok(())
}
