//! Random operations on a daemon whose disk loses power, fails and fills up, compared with its
//! earlier answers.

mod kind;
mod ledger;
mod plan;
mod world;

use anyhow::{Context as _, Result};
use twinprobe_tests::disk::FileSystem;
use twinprobe_tests::explore::{Limits, explore, tell, without};
use twinprobe_tests::scaled;

use self::plan::Step;
use self::world::World;

/// The first seed of a usual run.
const USUAL_SEED: u64 = 309;

fn run(seed: u64, steps: &[Step], done: &mut usize) -> Result<()> {
    let kind = FileSystem::ALL[(seed % 3) as usize];
    let mut world = World::new(kind, seed.is_multiple_of(2))?;
    for (number, step) in steps.iter().enumerate() {
        *done = number + 1;
        tell(|| format!("{number}: {step}"));
        world
            .step(step)
            .with_context(|| format!("{kind:?}, step {number}, {step}"))?;
    }
    world.end().context("at the end")
}

fn plan(seed: u64, length: usize) -> Vec<Step> {
    let mut steps = plan::plan(seed, length);
    steps.retain(|step| {
        !plan::STEPS
            .into_iter()
            .any(|name| without(name) && step.to_string().starts_with(name))
    });
    steps
}

#[test]
fn whatever_happens_to_the_disk_clients_find_what_they_were_told() -> Result<()> {
    explore(
        &Limits::from_environment(USUAL_SEED, 40, scaled(12, 3 * 3600)),
        plan,
        run,
    )
}
