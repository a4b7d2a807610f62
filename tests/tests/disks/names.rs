//! Names that are used again: a probe is deleted, or its lease ends, and another one gets its name.

use anyhow::{Result, ensure};

use super::scene::{End, SURROUNDINGS, Scene, Spec, Surroundings};
use super::told::Told;

/// The bytes of an entry: the packets sent before a window is closed tell how many entries it has.
const ENTRY: u64 = 16 << 10;
/// Numbers of packets whose windows have more than 256 KiB, and less.
const LARGE: u64 = 40;
const SMALL: u64 = 2;

/// The way in which an earlier probe with the same name has ended.
#[derive(Clone, Copy, Debug)]
enum Gone {
    Deleted,
    /// The lease of the probe ended, and its last windows were acknowledged.
    Expired,
    /// The lease of the probe ended. Collectors still have to take its windows, and the next probe
    /// of its name continues with their numbers.
    Left,
}

/// The packets of the windows of a probe and its successor.
struct Case {
    name: &'static str,
    gone: Gone,
    before: &'static [u64],
    after: &'static [u64],
}

/// Closes windows of a probe and removes it. Returns the daemon's answers about the name then.
fn end_predecessor(scene: &mut Scene, spec: &Spec, case: &Case) -> Result<Told> {
    let mut predecessor = Told::of(case.name);
    for count in case.before {
        predecessor.close(scene, *count)?;
    }
    match case.gone {
        Gone::Deleted => drop(scene.daemon().delete(&Scene::path(case.name)).expect(204)),
        Gone::Left | Gone::Expired => {
            scene.put(
                case.name,
                &Spec {
                    expires: Some("100ms"),
                    ..spec.clone()
                },
                200,
            );
            scene.wait_until_gone(case.name)?;
            predecessor.note_last(scene)?;
            if matches!(case.gone, Gone::Left) {
                return Ok(predecessor.successor());
            }
            scene
                .windows(case.name)
                .acknowledge(predecessor.newest, None)?
                .expect(204);
        }
    }
    Ok(Told::of(case.name))
}

/// Uses names again, reboots, and compares the remaining windows with earlier answers.
fn reboot_after(surroundings: Surroundings, cases: &[Case]) -> Result<()> {
    let mut scene = Scene::new(surroundings)?;
    let mut successors = Vec::new();
    for case in cases {
        let spec = Spec {
            size: ENTRY,
            ..Spec::default()
        };
        let first = scene.put(case.name, &spec, 201);
        let mut successor = end_predecessor(&mut scene, &spec, case)?;
        let second = scene.put(case.name, &spec, 201);
        ensure!(
            first["instance"] != second["instance"],
            "{}: {second}",
            case.name
        );
        for count in case.after {
            successor.close(&mut scene, *count)?;
        }
        successor.check(&scene)?;
        successors.push((successor, second["instance"].clone()));
    }
    for end in [End::Reboot, End::Reboot] {
        scene.end(end)?;
        for (successor, instance) in &successors {
            successor.check(&scene)?;
            let status = scene.status(&successor.probe);
            ensure!(
                status["instance"] == *instance,
                "{}: another instance: {status}",
                successor.probe
            );
        }
        for (successor, _) in &mut successors {
            successor.close(&mut scene, SMALL)?;
            successor.close(&mut scene, LARGE)?;
        }
    }
    Ok(())
}

/// Large windows were missing without being lost. A large newest window lost its number to the next
/// window, and the sum fell.
#[test]
fn large_windows_of_a_name_used_again_survive_a_reboot() -> Result<()> {
    for surroundings in SURROUNDINGS {
        let case = |name, gone, before, after| Case {
            name,
            gone,
            before,
            after,
        };
        reboot_after(
            surroundings,
            &[
                case(
                    "a",
                    Gone::Deleted,
                    &[LARGE, SMALL],
                    &[LARGE, SMALL, LARGE, SMALL],
                ),
                case("b", Gone::Deleted, &[SMALL], &[SMALL, LARGE]),
                case("c", Gone::Expired, &[SMALL, LARGE], &[SMALL, 60, SMALL]),
                case("d", Gone::Left, &[LARGE], &[SMALL, 250]),
            ],
        )?;
    }
    Ok(())
}

/// The newest window of a successor is large, and no probe has a later one.
#[test]
fn a_number_is_not_used_again_after_a_reboot() -> Result<()> {
    for surroundings in [SURROUNDINGS[0], SURROUNDINGS[3]] {
        let mut scene = Scene::new(surroundings)?;
        let spec = Spec {
            size: ENTRY,
            ..Spec::default()
        };
        scene.put("a", &spec, 201);
        Told::of("a").close(&mut scene, SMALL)?;
        scene.daemon().delete(&Scene::path("a")).expect(204);
        scene.put("a", &spec, 201);
        let mut told = Told::of("a");
        for count in [SMALL, SMALL, LARGE] {
            told.close(&mut scene, count)?;
        }
        scene.end(End::Reboot)?;
        told.close(&mut scene, SMALL)?;
    }
    Ok(())
}

#[test]
fn a_deleted_probe_does_not_come_back_in_its_successor() -> Result<()> {
    for surroundings in SURROUNDINGS {
        reboot_after(
            surroundings,
            &[
                Case {
                    name: "a",
                    gone: Gone::Deleted,
                    before: &[SMALL, 3, 4],
                    after: &[1],
                },
                Case {
                    name: "b",
                    gone: Gone::Left,
                    before: &[SMALL, 3],
                    after: &[1],
                },
                Case {
                    name: "c",
                    gone: Gone::Expired,
                    before: &[1, 2],
                    after: &[5],
                },
                Case {
                    name: "d",
                    gone: Gone::Deleted,
                    before: &[SMALL, 3, 4],
                    after: &[],
                },
            ],
        )?;
    }
    Ok(())
}
