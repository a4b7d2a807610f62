//! Steps that change the daemon's surroundings: interfaces, namespaces and attachments.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::perform;
use crate::model::links::attachments;
use crate::model::plan::Step;
use crate::model::sender::Socket;
use crate::model::spec::Place;
use crate::model::world::World;
use crate::wait::{PATIENCE, wait_for};
use crate::{Namespace, veth_pair};

/// The peer of `ext0`, which sends packets to `ext0`.
const OTHER_END: &str = "genx0";

/// Adds, removes or renames the interface that the pattern matches.
pub fn link(world: &mut World, rename: bool) -> Result<()> {
    let monitor = world.topology.monitor();
    let generator = world.topology.generator();
    match (world.extra, rename) {
        (Some("ext0"), true) => {
            rename_link(world, "ext0", "other0")?;
            world.set_extra(Some("other0"))?;
        }
        (Some("other0"), _) => {
            rename_link(world, "other0", "ext0")?;
            world.set_extra(Some("ext0"))?;
        }
        (Some(_), _) => {
            generator.run("ip", &["link", "del", OTHER_END])?;
            world.set_extra(None)?;
        }
        (None, _) => {
            veth_pair(generator, OTHER_END, monitor, "ext0")?;
            world.set_extra(Some("ext0"))?;
        }
    }
    followed(world)
}

fn rename_link(world: &World, from: &str, to: &str) -> Result<()> {
    let monitor = world.topology.monitor();
    monitor.run("ip", &["link", "set", "dev", from, "down"])?;
    monitor.run("ip", &["link", "set", "dev", from, "name", to])?;
    monitor.run("ip", &["link", "set", "dev", to, "up"])
}

/// Waits until probes are attached to the right interfaces.
pub fn followed(world: &mut World) -> Result<()> {
    for index in world.probes.keys().copied().collect::<Vec<_>>() {
        let path = world.probes[&index].path();
        wait_for("probes follow their interfaces", PATIENCE, || {
            let status = world.status(&path)?.context("a probe")?;
            let extra = world.is_there(index);
            crate::model::status::attachments(&world.probes[&index], &status, extra)
        })?;
    }
    Ok(())
}

/// Adds the interface while a step is done.
pub fn arrive(world: &mut World, after: u64, step: &Step) -> Result<()> {
    if world.extra == Some("other0") {
        link(world, true)?;
    }
    if world.extra.is_some() {
        link(world, false)?;
    }
    let (monitor, generator) = (
        world.topology.monitor().clone(),
        world.topology.generator().clone(),
    );
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(after));
        veth_pair(&generator, OTHER_END, &monitor, "ext0")
    });
    let done = perform(world, step);
    thread
        .join()
        .map_err(|_| anyhow!("making an interface panicked"))??;
    world.set_extra(Some("ext0"))?;
    done?;
    followed(world)
}

/// Removes an attachment as another program would, and waits until the daemon has put it back.
pub fn detach(world: &mut World, which: u64) -> Result<()> {
    let monitor = world.topology.monitor();
    let all = attachments(world.directories.bpffs(), monitor)?;
    let Some(taken) = all.get(which as usize % all.len().max(1)) else {
        return Ok(());
    };
    taken.remove(monitor)?;
    wait_for("an attachment is put back", PATIENCE, || {
        ensure!(taken.is_there(monitor)?, "{taken:?} is not there");
        Ok(())
    })
}

/// Adds or removes the namespace of a probe.
pub fn space(world: &mut World) -> Result<()> {
    const OTHER_END: &str = "gspace0";
    if world.little {
        return Ok(());
    }
    let path = world.space_path();
    let generator = world.topology.generator();
    if world.space.take().is_some() {
        // The kernel removes the interfaces of a namespace some time after its name.
        wait_for(
            "the pair of the removed namespace is gone",
            PATIENCE,
            || {
                let is_there = generator.interface_index(OTHER_END).is_ok();
                ensure!(!is_there, "{OTHER_END} is there");
                Ok(())
            },
        )?;
    } else {
        let name = path.rsplit('/').next().context("a name")?;
        let space = Namespace::create(name)?;
        veth_pair(generator, OTHER_END, &space, "in0")?;
        let socket = Socket::new(generator, OTHER_END)?;
        world.space = Some((space, socket));
    }
    followed(world)
}

/// Sends a burst to the temporary interface.
pub fn send(world: &mut World, packets: u64) -> Result<()> {
    let seen = world
        .probes
        .values()
        .any(|probe| probe.spec.place == Place::XdpPattern);
    if world.extra.is_none() {
        return Ok(());
    }
    world.send_extra(packets, seen)
}
