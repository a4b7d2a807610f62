//! Temporary errors of the disk: everything that was answered before and after them is still there,
//! and the daemon recovers without help.

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::disk::{Failing, FileSystem};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::scene::{End, Place, Scene, Spec};
use super::told::Told;

/// Windows of 32 KiB, and of 640 KiB.
const ENTRY: u64 = 16 << 10;
const SMALL: u64 = 2;
const LARGE: u64 = 40;

/// Unsynced data was lost after a reboot when the disk had failed, although its windows had been
/// answered.
#[test]
fn windows_that_were_answered_survive_errors_of_the_disk() -> Result<()> {
    for kind in [FileSystem::Ext4, FileSystem::Xfs] {
        let mut scene = Scene::new((Place::Disk(kind), false))?;
        scene.put(
            "a",
            &Spec {
                size: ENTRY,
                ..Spec::default()
            },
            201,
        );
        let mut told = Told::of("a");
        for count in [SMALL, SMALL, LARGE, SMALL] {
            told.close(&mut scene, count)?;
        }
        scene.disk().fail(Failing::Data)?;
        let answer = scene.windows("a").try_close()?;
        ensure!(
            answer.status == 500,
            "a window is stored on a disk that fails: {}",
            answer.status
        );
        if kind == FileSystem::Xfs {
            // The kernel can't write its cached data. An ext4 would give up: its own tables can't
            // be written either.
            let _ = scene.disk().write_back();
        }
        scene.disk().heal()?;
        ensure!(scene.disk().is_alive(), "{kind:?} has given up");
        let answer = wait_for("a window after the errors", PATIENCE, || {
            let answer = scene.windows("a").try_close()?;
            ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
            Ok(answer)
        })?;
        told.note(&scene, &answer.json())?;
        for end in [End::Restart, End::Reboot] {
            told.close(&mut scene, SMALL)?;
            scene.end(end)?;
            told.check(&scene)?;
        }
    }
    Ok(())
}

/// Attempts to store windows on a disk that failed left pages in memory that no later sync wrote,
/// and the store was damaged after a reboot.
#[test]
fn a_store_is_whole_after_attempts_on_a_disk_that_failed() -> Result<()> {
    const ATTEMPTS: usize = 3;
    for kind in [FileSystem::Ext4, FileSystem::Xfs] {
        let mut scene = Scene::new((Place::Disk(kind), false))?;
        scene.put("a", &Spec::default(), 201);
        let mut told = Told::of("a");
        scene.disk().fail(Failing::Data)?;
        for _ in 0..ATTEMPTS {
            let answer = scene.windows("a").try_close()?;
            ensure!(
                answer.status == 500,
                "a window is stored on a disk that fails: {}",
                answer.status
            );
        }
        scene.disk().heal()?;
        ensure!(scene.disk().is_alive(), "{kind:?} has given up");
        let answer = wait_for("a window after the errors", PATIENCE, || {
            let answer = scene.windows("a").try_close()?;
            ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
            Ok(answer)
        })?;
        told.note(&scene, &answer.json())?;
        for _ in 0..2 {
            scene.end(End::Reboot)?;
            told.check(&scene)?;
            told.close(&mut scene, SMALL)?;
        }
    }
    Ok(())
}

/// The kernel ended a daemon that wrote to a page of memory for which a full btrfs had no room.
#[test]
fn a_daemon_outlives_a_full_disk() -> Result<()> {
    for kind in FileSystem::ALL {
        let mut scene = Scene::new((Place::Disk(kind), false))?;
        scene.put("a", &Spec::default(), 201);
        let mut told = Told::of("a");
        for _ in 0..3 {
            told.close(&mut scene, SMALL)?;
            scene.disk().write_back()?;
            scene.disk().room().fill()?;
            for _ in 0..3 {
                let answer = scene.windows("a").try_close()?;
                match answer.status {
                    201 => told.note(&scene, &answer.json())?,
                    status => ensure!(status == 507, "{kind:?}: {status} {}", answer.text()),
                }
                ensure!(
                    scene
                        .windows("a")
                        .try_list("")?
                        .seqs()
                        .contains(&told.newest),
                    "{kind:?}"
                );
            }
            scene.disk().room().free()?;
            // A btrfs has the freed room only after this.
            scene.disk().write_back()?;
        }
        scene.end(End::Kill)?;
        told.check(&scene)?;
    }
    Ok(())
}

/// An ext4 and a btrfs that have given up after an error can still be read, and so can windows. An
/// xfs can't; no window is taken for a damaged or missing window.
#[test]
fn windows_are_read_from_a_disk_that_has_become_read_only() -> Result<()> {
    for kind in FileSystem::ALL {
        let mut scene = Scene::new((Place::Disk(kind), false))?;
        scene.put(
            "a",
            &Spec {
                size: 16,
                ..Spec::default()
            },
            201,
        );
        let mut told = Told::of("a");
        for _ in 0..3 {
            told.close(&mut scene, SMALL)?;
        }
        scene.disk().fail(Failing::Writes)?;
        let _ = scene.windows("a").try_close()?;
        let _ = scene.disk().write_back();
        let look = || match kind {
            FileSystem::Xfs => {
                let status = scene.windows("a").try_get(told.newest)?.status;
                ensure!(
                    [200, 500, 503].contains(&status),
                    "a window that can't be read is {status}"
                );
                Ok(())
            }
            _ => told.check(&scene),
        };
        look().with_context(|| format!("{kind:?}, while writes fail"))?;
        scene.disk().heal()?;
        look().with_context(|| format!("{kind:?}, after that"))?;
        scene.end(End::Reboot)?;
        told.check(&scene)
            .with_context(|| format!("{kind:?}, after a reboot"))?;
    }
    Ok(())
}
