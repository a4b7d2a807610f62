//! Steps that act on the daemon itself.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::perform;
use crate::model::links::attachments;
use crate::model::plan::Step;
use crate::model::probe::Turn;
use crate::model::reboot;
use crate::model::time::now;
use crate::model::world::World;
use crate::wait::{PATIENCE, wait_for};
use crate::{Daemon, DaemonOptions, Directories, Store};

/// Ends the daemon by SIGTERM or SIGKILL and starts the next one.
pub fn restart(world: &mut World, kill: bool, traffic: bool) -> Result<()> {
    let mut daemon = world.daemon.take();
    let options = world.options.clone();
    let (started, sent) = world.during(traffic, |world| {
        let daemon = daemon.take().context("a daemon")?;
        let directories = if kill {
            daemon.kill()?
        } else {
            daemon.terminate()?.1
        };
        Daemon::start_in(world.topology.monitor(), &options, directories)
    })?;
    world.daemon = Some(started?);
    sent.into_iter().for_each(|sent| world.account(sent, None));
    Ok(())
}

/// Ends the daemon at a point of `step`.
pub fn crash(world: &mut World, point: &str, time: u64, step: &Step) -> Result<()> {
    let daemon = world.daemon.take().context("a daemon")?;
    let directories = daemon.kill()?;
    let options = world
        .options
        .clone()
        .environment("TWINPROBE_CRASH_AT", format!("{point}:{time}"));
    let daemon = Daemon::spawn_in(world.topology.monitor(), &options, directories)?;
    daemon.wait_for_start(PATIENCE);
    world.daemon = Some(daemon);
    doomed(world, step)
}

/// Kills the daemon `after` milliseconds after the step began.
pub fn kill(world: &mut World, after: u64, step: &Step) -> Result<()> {
    let daemon = world.daemon.as_ref().context("a daemon")?;
    let killer = daemon.killer()?;
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(after));
        killer();
    });
    let done = doomed(world, step);
    thread.join().map_err(|_| anyhow!("the killer panicked"))?;
    done
}

/// Does a step in which the daemon may die at any time.
fn doomed(world: &mut World, step: &Step) -> Result<()> {
    world.doomed = true;
    perform(world, step)?;
    if world.doomed {
        world.recover()?;
    }
    Ok(())
}

/// Removes everything from the kernel: by a reboot, or by a daemon that detaches on exit.
pub fn anew(world: &mut World, kill: bool, by_itself: bool) -> Result<()> {
    world.collect(None)?;
    if by_itself {
        let options = world.options.clone().argument("--detach-on-exit");
        let daemon = world.daemon.take().context("a daemon")?;
        world.daemon = Some(daemon.restart(libc::SIGKILL, &options)?);
    }
    let since = now();
    let daemon = world.daemon.take().context("a daemon")?;
    let directories = if kill {
        daemon.kill()?
    } else {
        daemon.terminate()?.1
    };
    if !by_itself {
        let space = world.space.as_ref().map(|(space, _)| space);
        reboot::forget(&directories, world.topology.monitor(), space)?;
    }
    let last: Vec<(usize, u64)> = world
        .probes
        .iter()
        .map(|(index, probe)| Ok((*index, reboot::newest(&directories, &probe.name)?)))
        .collect::<Result<_>>()?;
    let options: DaemonOptions = world.options.clone();
    world.start(&options)?;
    let address = world.address();
    for (index, last) in last {
        let turn = Turn::Anew {
            last,
            graceful: by_itself,
            since,
        };
        let probe = world.probes.get_mut(&index).context("a probe")?;
        probe
            .collect(&address, Some(turn))
            .with_context(|| format!("windows of {}", probe.name))?;
    }
    Ok(())
}

/// Checks that a daemon with a state of its own and the pins of this one refuses to start.
pub fn second(world: &mut World) -> Result<()> {
    let directories = Arc::new(Directories::with_pins_of(&world.directories)?);
    let second = Daemon::spawn_in(world.topology.monitor(), &world.options, directories)?;
    ensure!(
        !second.wait_for_start(PATIENCE),
        "a second daemon runs on the same pins"
    );
    let log = second.log();
    let state = world.directories.state();
    ensure!(
        log.contains(&state.display().to_string()),
        "the refusal does not name {state:?}: {log}"
    );
    Ok(())
}

/// Limits the daemon to `more` further descriptors for some time while a step is done.
pub fn descriptors(world: &mut World, more: u64, milliseconds: u64, step: &Step) -> Result<()> {
    let daemon = world.daemon.as_ref().context("a daemon")?;
    let (pid, open) = (daemon.pid(), daemon.open_files() as u64);
    let before = limit(pid, None)?;
    limit(
        pid,
        Some(libc::rlimit {
            rlim_cur: (open + more).min(before.rlim_cur),
            ..before
        }),
    )?;
    // Requests wait while no connection can be accepted, so the limit must end before their
    // answers.
    let lifting = thread::spawn(move || {
        thread::sleep(Duration::from_millis(milliseconds));
        limit(pid, Some(before))
    });
    world.trouble = true;
    let done = perform(world, step);
    world.trouble = false;
    let lifted = lifting
        .join()
        .map_err(|_| anyhow!("lifting a limit panicked"))?;
    lifted.context(
        "the daemon has ended, or a request got no answer, after which another daemon began",
    )?;
    done?;
    recovered(world)
}

/// Makes the disk full while steps are done, or read-only between one daemon and the next.
pub fn disk(world: &mut World, full: bool, steps: &[Step]) -> Result<()> {
    let directories = Arc::clone(&world.directories);
    let disk = directories.state_in_memory();
    if full {
        disk.fill()?;
    } else {
        // No disk becomes read-only below a daemon that has its store open.
        drop(world.daemon.take().context("a daemon")?.kill()?);
        disk.read_only()?;
        let options = world.options.clone();
        world.start(&options)?;
    }
    world.trouble = true;
    let done = steps.iter().try_for_each(|step| perform(world, step));
    world.trouble = false;
    if full {
        disk.free()?;
    } else {
        disk.read_write()?;
    }
    done?;
    recovered(world)
}

/// Checks after a failure that windows can be closed again, and that they contain the counts that
/// could not be stored.
fn recovered(world: &mut World) -> Result<()> {
    let windows: Vec<usize> = world
        .probes
        .iter()
        .filter(|(_, probe)| probe.spec.has_windows())
        .map(|(index, _)| *index)
        .collect();
    windows
        .into_iter()
        .try_for_each(|index| super::requests::close(world, index, false))
}

/// Sets the daemon's wall clock.
pub fn clock(world: &mut World, seconds: i64) -> Result<()> {
    let file = world.directories.temporary().join("clock");
    let new = file.with_extension("new");
    let nanoseconds = seconds * 1_000_000_000;
    fs::write(&new, nanoseconds.to_string())?;
    fs::rename(new, file)?;
    world.clock.set(nanoseconds.into());
    Ok(())
}

/// Checks that a daemon without a compiler takes over running probes and refuses new ones.
pub fn no_compiler(world: &mut World, index: usize) -> Result<()> {
    let directories = world.daemon.take().context("a daemon")?.kill()?;
    let options = world
        .options
        .clone()
        .environment("TWINPROBE_CLANG", "/nonexistent/clang");
    world.daemon = Some(Daemon::start_in(
        world.topology.monitor(),
        &options,
        directories,
    )?);
    world.check().context("without a compiler")?;
    world.trouble = true;
    let done = perform(
        world,
        &Step::Put {
            probe: index,
            seed: 1,
            traffic: true,
        },
    );
    world.trouble = false;
    done?;
    world.check().context("without a compiler")?;
    world.recover()
}

/// Checks that a probe whose stored state can't be read keeps its programs.
pub fn unreadable(world: &mut World, index: usize) -> Result<()> {
    let Some(probe) = world.probes.get(&index) else {
        return Ok(());
    };
    let name = probe.name.clone();
    world.collect(None)?;
    let directories = world.daemon.take().context("a daemon")?.kill()?;
    let store = Store::open(&directories)?;
    let stored = store.record(&name)?;
    store.set_record(&name, b"{ \"none\"")?;
    drop(store);
    world.daemon = Some(Daemon::start_in(
        world.topology.monitor(),
        &world.options.clone(),
        directories,
    )?);
    world.send(30, false)?;
    world.send(30, true)?;
    let directories = world.daemon.take().context("a daemon")?.kill()?;
    Store::open(&directories)?.set_record(&name, stored)?;
    world.recover()
}

/// Deletes all probes and checks that nothing is left of them.
pub fn end(world: &mut World) -> Result<()> {
    for index in world.probes.keys().copied().collect::<Vec<_>>() {
        perform(
            world,
            &Step::Close {
                probe: index,
                traffic: false,
            },
        )?;
        perform(
            world,
            &Step::Delete {
                probe: index,
                traffic: false,
            },
        )?;
    }
    world.check()?;
    if !world.is_exhausted() {
        world.send(20, true)?;
    }
    for directory in ["hooks", "probes"] {
        let left = fs::read_dir(world.directories.bpffs().join(directory))
            .into_iter()
            .flatten()
            .count();
        ensure!(left == 0, "{left} pins are left in {directory}");
    }
    let left = attachments(world.directories.bpffs(), world.topology.monitor())?;
    ensure!(left.is_empty(), "{left:?} are left");
    if let Some((space, _)) = &world.space {
        wait_for("no filter in the namespace", PATIENCE, || {
            let filters = space.output("tc", &["filter", "show", "dev", "in0", "ingress"])?;
            ensure!(filters.is_empty(), "{filters}");
            Ok(())
        })?;
    }
    Ok(())
}

fn limit(pid: u32, new: Option<libc::rlimit>) -> Result<libc::rlimit> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.as_ref().map_or(std::ptr::null(), |new| &raw const *new);
    // SAFETY: both structures outlive the call; a null pointer asks only.
    let done = unsafe { libc::prlimit(pid as i32, libc::RLIMIT_NOFILE, new, &raw mut old) };
    ensure!(done == 0, "prlimit: {}", std::io::Error::last_os_error());
    Ok(old)
}
