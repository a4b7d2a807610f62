//! An orderly reboot: windows that clients took are not given again, and windows that were reset do
//! not continue.

use anyhow::{Result, ensure};

use super::scene::{End, SURROUNDINGS, Scene, Spec, packets, total};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The bytes of an entry for each name, for windows of some 100 bytes to 3 MiB.
const SIZES: [u64; 3] = [16, 3000, 32 << 10];

#[test]
fn a_window_that_was_taken_is_not_given_again_after_a_reboot() -> Result<()> {
    for surroundings in SURROUNDINGS {
        let mut scene = Scene::new(surroundings)?;
        for (name, size) in NAMES.into_iter().zip(SIZES) {
            scene.put(
                name,
                &Spec {
                    size,
                    window: None,
                    ..Spec::default()
                },
                201,
            );
        }
        let mut taken = [0; NAMES.len()];
        let mut sent = 0;
        for end in [End::Reboot, End::Restart, End::Reboot] {
            for _ in 0..3 {
                scene.send(100)?;
                sent += 100;
                for (name, taken) in NAMES.into_iter().zip(&mut taken) {
                    *taken += packets(&scene.daemon().json(&(Scene::path(name) + "/metrics")));
                }
            }
            scene.end(end)?;
            for (name, taken) in NAMES.into_iter().zip(&mut taken) {
                *taken += packets(&scene.daemon().json(&(Scene::path(name) + "/metrics")));
                ensure!(
                    *taken == sent,
                    "{surroundings:?}, {name}, {end:?}: {taken} of {sent} packets taken"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_sum_that_was_reset_stays_so_after_a_reboot() -> Result<()> {
    for surroundings in SURROUNDINGS {
        let mut scene = Scene::new(surroundings)?;
        let spec = Spec {
            size: 4096,
            ..Spec::default()
        };
        for name in NAMES {
            scene.put(name, &spec, 201);
        }
        // Two of the names have had other probes. The deletion of these must not undo the reset.
        for name in ["b", "c"] {
            scene.windows(name).close();
            scene.daemon().delete(&Scene::path(name)).expect(204);
            scene.put(name, &spec, 201);
        }
        // All probes see all packets: the window of `b` is small, that of `c` is large.
        for (name, count) in [("b", 10), ("a", 3), ("c", 200)] {
            scene.send(count)?;
            let document = scene.windows(name).close();
            ensure!(total(&document) > 0, "{document}");
        }
        let reset = Spec {
            reset: true,
            variant: 1,
            ..spec.clone()
        };
        // One probe has a window after the reset. The other probes have none: the reset has cleared
        // their counts.
        scene.put("a", &reset, 200);
        scene.send(2)?;
        let document = scene.windows("a").close();
        ensure!(
            total(&document) == 2,
            "the sum before the reboot: {}",
            total(&document)
        );
        for name in ["b", "c"] {
            scene.put(name, &reset, 200);
        }
        scene.end(End::Reboot)?;
        scene.send(3)?;
        for (name, sum) in NAMES.into_iter().zip([5, 3, 3]) {
            let document = scene.windows(name).close();
            ensure!(
                total(&document) == sum,
                "{surroundings:?}: the sum of {name} is {} and not {sum}",
                total(&document)
            );
        }
    }
    Ok(())
}
