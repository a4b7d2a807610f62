//! The steps of the random test. Each step is possible after any other steps, so that a list of
//! them can be shortened.

use std::fmt;

use twinprobe_tests::random::Random;

/// The names of probes.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Something that can also be done while the disk has errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends packets to all probes.
    Send {
        packets: u64,
    },
    /// Creates a probe of this kind, or replaces the existing one.
    Put {
        name: usize,
        kind: u64,
        reset: bool,
    },
    Delete {
        name: usize,
    },
    /// Gives a probe a short lease, and waits for its end.
    Expire {
        name: usize,
    },
    /// Sends packets to all probes, and closes a window of one by POST.
    Close {
        name: usize,
        packets: u64,
    },
    /// Sends packets to all probes, and reads the metrics of one. This closes a window unless the
    /// clock closes the windows.
    Take {
        name: usize,
        packets: u64,
    },
    /// Reads the metrics and hangs up within the answer.
    HangUp {
        name: usize,
        bytes: u64,
    },
    /// Acknowledges the windows up to a retained window, for a collector or for all.
    Acknowledge {
        name: usize,
        which: u64,
        collector: u64,
    },
    /// Compares every window with earlier answers.
    Check,
    /// SIGTERM and another daemon.
    Restart,
    /// SIGTERM and another boot.
    Reboot,
    /// SIGKILL and another daemon.
    Kill,
    /// Lets the power of the disk fail at the write of this number, counted from now, while a
    /// client closes windows of `name`. If `writes_back` is true, the kernel then writes its cached
    /// data back.
    PowerLoss {
        name: usize,
        seed: u64,
        writes: u64,
        writes_back: bool,
    },
    /// Does the steps while the disk can't be written or is full.
    Trouble {
        full: bool,
        steps: Vec<Self>,
    },
}

/// The names of the steps that can be left out.
pub const STEPS: [&str; 14] = [
    "Send",
    "Put",
    "Delete",
    "Expire",
    "Close",
    "Take",
    "HangUp",
    "Acknowledge",
    "Check",
    "Restart",
    "Reboot",
    "Kill",
    "PowerLoss",
    "Trouble",
];

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Returns random steps. The first ones create probes.
pub fn plan(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = Random::seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.below(2);
    let mut plan = Vec::new();
    for name in 0..NAMES.len() {
        plan.push(Step::Put {
            name,
            kind: random.below(KINDS),
            reset: false,
        });
    }
    while plan.len() < steps {
        let step = step(&mut random);
        if is_end(&step) && random.below(3) > 0 {
            // Only the last change may be missing in the store.
            let name = random.below(NAMES.len() as u64) as usize;
            plan.push(Step::Take {
                name,
                packets: random.below(3),
            });
        }
        let next = follow(&step, &mut random);
        plan.push(step);
        plan.extend(next);
    }
    plan
}

/// Tells whether the daemon ends in a step and another one starts.
fn is_end(step: &Step) -> bool {
    matches!(
        step,
        Step::Restart | Step::Reboot | Step::Kill | Step::PowerLoss { .. }
    )
}

/// Returns steps that are likely to show a mistake of this one: they use a name again, or read
/// windows after a new start.
fn follow(step: &Step, random: &mut Random) -> Vec<Step> {
    match *step {
        Step::Delete { name } | Step::Expire { name } if random.below(4) > 0 => {
            let put = Step::Put {
                name,
                kind: random.below(KINDS),
                reset: false,
            };
            let then = (0..random.below(4)).map(|_| Step::Close {
                name,
                packets: packets(random),
            });
            std::iter::once(put)
                .chain(then.collect::<Vec<_>>())
                .collect()
        }
        Step::Put { name, .. } if random.below(2) == 0 => {
            vec![Step::Close {
                name,
                packets: packets(random),
            }]
        }
        Step::Put {
            name, reset: true, ..
        } => {
            vec![
                Step::Reboot,
                Step::Close {
                    name,
                    packets: packets(random),
                },
            ]
        }
        _ if is_end(step) && random.below(4) > 0 => (0..NAMES.len())
            .map(|name| Step::Take {
                name,
                packets: random.below(3),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The number of kinds of probes, see [`super::kind::Kind`].
pub const KINDS: u64 = 1 << 16;

fn step(random: &mut Random) -> Step {
    let name = random.below(NAMES.len() as u64) as usize;
    match random.below(100) {
        0..9 => Step::Put {
            name,
            kind: random.below(KINDS),
            reset: random.below(3) == 0,
        },
        9..16 => Step::Delete { name },
        16..19 => Step::Expire { name },
        19..21 => Step::Check,
        21..24 => Step::Restart,
        24..35 => Step::Reboot,
        35..38 => Step::Kill,
        38..48 => Step::PowerLoss {
            name,
            seed: random.below(1 << 32),
            writes: random.below(40),
            writes_back: random.below(3) == 0,
        },
        48..52 => {
            let steps = (0..2 + random.below(5))
                .map(|_| step_in_trouble(random))
                .collect();
            Step::Trouble {
                full: random.below(2) == 0,
                steps,
            }
        }
        _ => request(random),
    }
}

/// Returns a step for a disk in trouble.
fn step_in_trouble(random: &mut Random) -> Step {
    let name = random.below(NAMES.len() as u64) as usize;
    match random.below(10) {
        0 => Step::Put {
            name,
            kind: random.below(KINDS),
            reset: random.below(2) == 0,
        },
        1 => Step::Delete { name },
        _ => request(random),
    }
}

/// Returns a step that needs only the running daemon.
fn request(random: &mut Random) -> Step {
    let name = random.below(NAMES.len() as u64) as usize;
    match random.below(20) {
        0..2 => Step::Send {
            packets: packets(random),
        },
        2..10 => Step::Close {
            name,
            packets: packets(random),
        },
        10..16 => Step::Take {
            name,
            packets: packets(random),
        },
        16 => Step::HangUp {
            name,
            bytes: random.below(2000),
        },
        _ => Step::Acknowledge {
            name,
            which: random.below(1000),
            collector: random.below(4),
        },
    }
}

/// Packets of up to 256 addresses: most windows are small, some have all entries that a map can
/// have.
fn packets(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 200 + random.below(200),
        1 => 1 + random.below(60),
        _ => 1 + random.below(5),
    }
}
