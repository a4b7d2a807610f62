//! The disk of the tests really loses writes: synced data survives every loss of power, and other
//! data is lost in some losses.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::disk::{Disk, Failing, FileSystem};
use twinprobe_tests::{Directories, scaled};

const LENGTH: usize = 64 << 10;

fn write(path: &Path, byte: u8) -> Result<File> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.write_all(&[byte; LENGTH])?;
    Ok(file)
}

fn sync(file: &File, directory: &Path) -> Result<()> {
    file.sync_all()?;
    Ok(File::open(directory)?.sync_all()?)
}

/// Writes the dirty pages of a file to the disk. The disk keeps them in its cache.
fn write_back(file: &File) -> Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers only, and the descriptor is open.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    ensure!(
        result == 0,
        "write back: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// The content of a file that was overwritten without a sync.
#[derive(Debug, Default)]
struct Found {
    old: u32,
    new: u32,
    mixed: u32,
}

fn lose_power(disk: &Disk, state: &Path, seed: u64, found: &mut Found) -> Result<()> {
    let synced = state.join(format!("synced-{seed}"));
    sync(&write(&synced, 1)?, state)?;
    let unsynced = state.join(format!("unsynced-{seed}"));
    write(&unsynced, 1)?;
    let overwritten = state.join("overwritten");
    sync(&write(&overwritten, 1)?, state)?;
    write_back(&write(&overwritten, 2)?)?;
    disk.power_off()?;
    ensure!(
        write(&state.join("late"), 1)
            .and_then(|file| sync(&file, state))
            .is_err(),
        "the power is off"
    );
    let lost = disk.power_on(seed)?;
    println!("{:?}, seed {seed}: {lost:?}", disk.kind());
    for earlier in 0..=seed {
        let content =
            fs::read(state.join(format!("synced-{earlier}"))).context("what was synced")?;
        ensure!(
            content == [1; LENGTH],
            "loss {seed}: what was synced before loss {earlier} is another"
        );
    }
    ensure!(
        !unsynced.exists() || fs::read(&unsynced)?.is_empty(),
        "nothing had written this file"
    );
    let content = fs::read(&overwritten)?;
    ensure!(
        content.len() == LENGTH && content.iter().all(|byte| [1, 2].contains(byte)),
        "neither old nor new"
    );
    match content.iter().filter(|byte| **byte == 2).count() {
        0 => found.old += 1,
        LENGTH => found.new += 1,
        _ => found.mixed += 1,
    }
    Ok(())
}

#[test]
fn what_was_synced_stays_and_the_rest_may_be_lost() -> Result<()> {
    for kind in FileSystem::ALL {
        let directories = Directories::with_state_on_disk(kind)?;
        let mut found = Found::default();
        for seed in 0..scaled(8, 100) {
            lose_power(directories.disk(), &directories.state(), seed, &mut found)?;
        }
        // A btrfs writes to other places than before: without a sync nothing names them.
        ensure!(
            found.old > 0 && (found.new > 0 || kind == FileSystem::Btrfs),
            "{kind:?}: {found:?}"
        );
    }
    Ok(())
}

#[test]
fn an_orderly_end_loses_nothing() -> Result<()> {
    for kind in FileSystem::ALL {
        let directories = Directories::with_state_on_disk(kind)?;
        for n in 0..3 {
            write(&directories.state().join(n.to_string()), n)?;
            directories.disk().remount()?;
            for earlier in 0..=n {
                let content = fs::read(directories.state().join(earlier.to_string()))?;
                ensure!(
                    content == [earlier; LENGTH],
                    "{kind:?}: file {earlier} after end {n}"
                );
            }
        }
    }
    Ok(())
}

/// Errors of the disk reach the writers. A file system survives errors outside its journal.
#[test]
fn a_disk_fails_for_a_while() -> Result<()> {
    for kind in [FileSystem::Ext4, FileSystem::Xfs] {
        let directories = Directories::with_state_on_disk(kind)?;
        let (disk, state) = (directories.disk(), directories.state());
        for n in 0..3_u8 {
            disk.fail(Failing::Data)?;
            let failed = write(&state.join("failed"), n).and_then(|file| sync(&file, &state));
            ensure!(failed.is_err(), "{kind:?}: written to a disk that fails");
            disk.heal()?;
            // The test writes another file: on ext4, data at the places of a failed write reads as
            // zeros after the next mount, although its sync succeeds.
            sync(&write(&state.join(n.to_string()), n)?, &state)?;
            ensure!(disk.is_alive(), "{kind:?} has given up");
        }
        disk.fail(Failing::Writes)?;
        ensure!(!disk.is_alive(), "{kind:?} works on a disk that fails");
        disk.heal()?;
        disk.remount()?;
        ensure!(disk.is_alive(), "{kind:?} has given up for good");
        ensure!(
            fs::read(state.join("2"))? == [2; LENGTH],
            "{kind:?}: another content"
        );
    }
    Ok(())
}

#[test]
fn a_disk_is_full_for_a_while() -> Result<()> {
    for kind in FileSystem::ALL {
        let directories = Directories::with_state_on_disk(kind)?;
        directories.disk().room().fill()?;
        let path = directories.state().join("file");
        ensure!(
            write(&path, 1)
                .and_then(|file| sync(&file, &directories.state()))
                .is_err(),
            "{kind:?}: room"
        );
        directories.disk().room().free()?;
        sync(&write(&path, 1)?, &directories.state())?;
    }
    Ok(())
}
