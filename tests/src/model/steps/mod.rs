//! The code that executes the steps of a random test.

mod daemon;
mod requests;
mod surroundings;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

pub use self::daemon::end;
pub use self::requests::read;
use self::requests::{acknowledge, close, delete, hang_up, put, refuse, reread, roll_back};
use super::plan::Step;
use super::world::World;
use crate::hog::Hog;
use crate::random::Random;

/// Does one step and compares everything with the model after it.
pub fn execute(world: &mut World, step: &Step) -> Result<()> {
    super::tell(|| step.to_string());
    perform(world, step)?;
    if world.daemon.is_none() {
        world.recover()?;
    }
    world.check().context("after the step")
}

fn perform(world: &mut World, step: &Step) -> Result<()> {
    match *step {
        Step::Send { packets, dropped } => world.send(packets, dropped),
        Step::Put {
            probe,
            seed,
            traffic,
        } => {
            let mut random = Random::seeded(seed);
            random.below(2);
            let generation = world.next_generation;
            world.next_generation += 1;
            let spec = match world.probes.get(&probe) {
                Some(known) => known.spec.change(generation, &mut random),
                None => world.choose(probe, generation, &mut random),
            };
            put(world, probe, spec, traffic)
        }
        Step::Refuse {
            probe,
            how,
            traffic,
        } => refuse(world, probe, how, traffic),
        Step::Rollback {
            probe,
            back,
            traffic,
        } => roll_back(world, probe, back, traffic),
        Step::Delete { probe, traffic } => delete(world, probe, traffic),
        Step::Read { probe, traffic } if world.probes.contains_key(&probe) => {
            read(world, probe, traffic)
        }
        Step::HangUp {
            probe,
            bytes,
            traffic,
        } if world.probes.contains_key(&probe) => hang_up(world, probe, bytes, traffic),
        Step::Close { probe, traffic } if world.probes.contains_key(&probe) => {
            close(world, probe, traffic)
        }
        Step::Acknowledge {
            probe,
            collector,
            back,
        } => acknowledge(world, probe, collector, back),
        Step::Reread { probe, back } => reread(world, probe, back),
        Step::Restart { kill, traffic } => daemon::restart(world, kill, traffic),
        Step::Crash {
            point,
            time,
            ref step,
        } => daemon::crash(world, point, time, step),
        Step::Kill { after, ref step } => daemon::kill(world, after, step),
        Step::Reboot { kill } => daemon::anew(world, kill, false),
        Step::DetachOnExit => daemon::anew(world, false, true),
        Step::SecondDaemon => daemon::second(world),
        Step::Descriptors {
            more,
            milliseconds,
            ref step,
        } => daemon::descriptors(world, more, milliseconds, step),
        Step::Disk { full, ref steps } => daemon::disk(world, full, steps),
        Step::Link { rename } => surroundings::link(world, rename),
        Step::Arrive { after, ref step } => surroundings::arrive(world, after, step),
        Step::Detach { which } => surroundings::detach(world, which),
        Step::Space => surroundings::space(world),
        Step::SendSpace { packets } => world.send_space(packets),
        Step::Clock { seconds } => daemon::clock(world, seconds),
        Step::Busy { ref step } => {
            let _hog = Hog::start(1, Duration::from_secs(2))?;
            perform(world, step)
        }
        Step::NoCompiler { probe } => daemon::no_compiler(world, probe),
        Step::Unreadable { probe } => daemon::unreadable(world, probe),
        Step::SendExtra { packets } => surroundings::send(world, packets),
        Step::Wait { milliseconds } => {
            thread::sleep(Duration::from_millis(milliseconds));
            Ok(())
        }
        _ => Ok(()),
    }
}
