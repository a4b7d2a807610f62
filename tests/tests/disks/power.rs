//! A loss of power: everything that the daemon answered with 201 is still there.

use anyhow::Result;
use twinprobe_tests::disk::FileSystem;

use super::scene::{End, Place, Scene, Spec};
use super::told::Told;

/// Windows of 48 KiB, and of 640 KiB.
const ENTRY: u64 = 16 << 10;
const SMALL: u64 = 3;
const LARGE: u64 = 40;

/// A window of more than 256 KiB once turned the small ones before it into files without content.
#[test]
fn windows_that_were_answered_survive_a_loss_of_power() -> Result<()> {
    for kind in FileSystem::ALL {
        // The neighbour's windows sync the others' windows; one file system suffices to show that.
        for is_busy in [false, true]
            .into_iter()
            .take(if kind == FileSystem::Ext4 { 2 } else { 1 })
        {
            let mut scene = Scene::new((Place::Disk(kind), is_busy))?;
            let mut told = [Told::of("a"), Told::of("b")];
            for probe in &told {
                scene.put(
                    &probe.probe,
                    &Spec {
                        size: ENTRY,
                        ..Spec::default()
                    },
                    201,
                );
            }
            for (seed, counts) in [&[SMALL, SMALL, SMALL, LARGE][..], &[SMALL, SMALL], &[LARGE]]
                .into_iter()
                .enumerate()
            {
                for probe in &mut told {
                    for count in counts {
                        probe.close(&mut scene, *count)?;
                    }
                }
                scene.end(End::PowerLoss(seed as u64))?;
                for probe in &told {
                    probe.check(&scene)?;
                }
            }
        }
    }
    Ok(())
}
