//! Events that come one by one.

use std::time::{Duration, Instant};

use anyhow::Result;
use twinprobe_tests::event_scene::Scene;
use twinprobe_tests::timed;
use twinprobe_tests::traffic::{Frame, PacedSender, Spread};

/// The number of events that come one by one.
const SLOW: u32 = 40;

/// Sends each event after the client has received the previous one. Returns the time of all.
fn one_by_one(scene: &Scene) -> Result<Duration> {
    let mut stream = scene.stream("")?;
    let mut sender = PacedSender::new(
        scene.topology.generator(),
        "gen0",
        Frame::default(),
        Spread::default(),
    )?;
    let begun = Instant::now();
    for serial in 0..SLOW {
        sender.send(1)?;
        assert_eq!(stream.json()?["event"]["serial"], serial);
    }
    Ok(begun.elapsed())
}

/// No event waits for another one.
#[test]
fn events_that_come_slowly_come_one_by_one() -> Result<()> {
    let scene = Scene::new("")?;
    one_by_one(&scene)?;
    scene.bystanders.finish()
}

/// Events that come fast are gathered for 20 ms.
#[timed("it measures how long an event waits")]
fn events_that_come_slowly_do_not_wait() -> Result<()> {
    let scene = Scene::new("")?;
    let time = one_by_one(&scene)?;
    assert!(time < SLOW * Duration::from_millis(10), "{time:?}");
    scene.bystanders.finish()
}
