//! The steps of a test. Each step is possible after all other steps, so that a list of them can be
//! shortened.

use std::fmt;

use super::spec::pick;
use crate::random::Random;

/// The names of all probes.
pub const PROBES: [&str; 5] = ["xdp", "pattern", "ingress", "egress", "space"];

/// The index of the probe whose interface is a pattern.
const PATTERN: usize = 1;

/// The names of the steps that can be left out.
pub const NAMES: [&str; 19] = [
    "Reboot",
    "DetachOnExit",
    "SecondDaemon",
    "Descriptors",
    "Disk",
    "Link",
    "Arrive",
    "Detach {",
    "Crash",
    "Kill",
    "HangUp",
    "Rollback",
    "Refuse",
    "SendExtra",
    "Space",
    "Clock",
    "Busy",
    "NoCompiler",
    "Unreadable",
];

/// The points at which the daemon can die in a change or a reading, and how often a step passes
/// them at most.
pub const POINTS: [(&str, u64); 25] = [
    ("pinned", 1),
    ("saved", 1),
    ("prepared", 1),
    ("filled", 2),
    ("linked", 1),
    ("attached", 2),
    ("switched", 1),
    ("committed", 1),
    ("transferred", 1),
    ("rewritten", 1),
    ("retiring", 2),
    ("retired", 1),
    ("flipped", 2),
    ("moved", 6),
    ("copied", 6),
    ("emptied", 6),
    ("popped", 9),
    ("gathered", 2),
    ("summed", 3),
    ("written", 2),
    ("stored", 2),
    ("cleared", 2),
    ("forgotten", 1),
    ("detaching", 1),
    ("detached", 1),
];

/// A step of a test. `traffic` steps run while packets are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a burst to mon0. Enforcing probes drop it if `dropped`.
    Send {
        packets: u64,
        dropped: bool,
    },
    /// Creates a probe, or replaces it by one that differs by `seed`.
    Put {
        probe: usize,
        seed: u64,
        traffic: bool,
    },
    /// Sends a replacement that must be refused.
    Refuse {
        probe: usize,
        how: u64,
        traffic: bool,
    },
    Rollback {
        probe: usize,
        back: u64,
        traffic: bool,
    },
    Delete {
        probe: usize,
        traffic: bool,
    },
    Read {
        probe: usize,
        traffic: bool,
    },
    /// Reads a probe and hangs up after this many bytes.
    HangUp {
        probe: usize,
        bytes: usize,
        traffic: bool,
    },
    Close {
        probe: usize,
        traffic: bool,
    },
    /// Acknowledges windows, except the newest `back` ones.
    Acknowledge {
        probe: usize,
        collector: Option<&'static str>,
        back: u64,
    },
    /// Reads a retained window again.
    Reread {
        probe: usize,
        back: u64,
    },
    Restart {
        kill: bool,
        traffic: bool,
    },
    /// Ends the daemon when it comes to a point for the `time`th time in a step.
    Crash {
        point: &'static str,
        time: u64,
        step: Box<Self>,
    },
    /// Kills the daemon this many milliseconds after a step began.
    Kill {
        after: u64,
        step: Box<Self>,
    },
    /// Removes everything of the daemon from the kernel, as a reboot does.
    Reboot {
        kill: bool,
    },
    /// Ends a daemon with `--detach-on-exit`.
    DetachOnExit,
    /// Starts a daemon with another state directory and the same pins.
    SecondDaemon,
    /// Lets the daemon open only `more` descriptors for some time while a step is done.
    Descriptors {
        more: u64,
        milliseconds: u64,
        step: Box<Self>,
    },
    /// Makes the disk full or read-only while steps are done.
    Disk {
        full: bool,
        steps: Vec<Self>,
    },
    /// Adds, removes or renames the interface that a pattern matches.
    Link {
        rename: bool,
    },
    /// Adds the interface of the pattern this many milliseconds after a step began.
    Arrive {
        after: u64,
        step: Box<Self>,
    },
    /// Removes an attachment of the daemon, as other software could.
    Detach {
        which: u64,
    },
    /// Sends a burst to the temporary interface.
    SendExtra {
        packets: u64,
    },
    /// Adds or removes the namespace of a probe.
    Space,
    SendSpace {
        packets: u64,
    },
    /// Sets the daemon's wall clock this many seconds ahead.
    Clock {
        seconds: i64,
    },
    /// Keeps a CPU busy with a real-time task while a step is done.
    Busy {
        step: Box<Self>,
    },
    /// Starts a daemon that finds no compiler, then one that does.
    NoCompiler {
        probe: usize,
    },
    /// Starts a daemon that can't read the stored state of a probe, then one that can.
    Unreadable {
        probe: usize,
    },
    /// Waits.
    Wait {
        milliseconds: u64,
    },
}

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
    for probe in 0..PROBES.len() {
        plan.push(Step::Put {
            probe,
            seed: random.below(u64::MAX),
            traffic: false,
        });
    }
    while plan.len() < steps {
        if random.below(2) == 0 {
            plan.push(send(&mut random));
        }
        plan.push(choose(&mut random));
    }
    plan
}

fn send(random: &mut Random) -> Step {
    Step::Send {
        packets: 1 + random.below(150),
        dropped: random.below(4) == 0,
    }
}

fn choose(random: &mut Random) -> Step {
    match random.below(138) {
        0..45 => request(random),
        45..50 => Step::Acknowledge {
            probe: probe(random),
            collector: pick(random, &[None, Some("a"), Some("b")]),
            back: random.below(3),
        },
        50..53 => Step::Reread {
            probe: probe(random),
            back: random.below(5),
        },
        53..58 => Step::Restart {
            kill: random.below(2) == 0,
            traffic: random.below(2) == 0,
        },
        58..76 => {
            let (point, times) = pick(random, &POINTS);
            let time = 1 + random.below(times);
            Step::Crash {
                point,
                time,
                step: Box::new(request(random)),
            }
        }
        76..86 => Step::Kill {
            after: random.below(500),
            step: Box::new(request(random)),
        },
        86..91 => Step::Reboot {
            kill: random.below(2) == 0,
        },
        91..94 => Step::DetachOnExit,
        94..97 => Step::Link {
            rename: random.below(3) == 0,
        },
        97..99 => {
            let seed = random.below(u64::MAX);
            let put = Step::Put {
                probe: PATTERN,
                seed,
                traffic: random.below(2) == 0,
            };
            let step = if random.below(4) > 0 {
                put
            } else {
                request(random)
            };
            Step::Arrive {
                after: random.below(300),
                step: Box::new(step),
            }
        }
        99..104 => Step::SendExtra {
            packets: 1 + random.below(50),
        },
        104..106 => Step::Detach {
            which: random.below(8),
        },
        106..108 => Step::SecondDaemon,
        108..113 => Step::Descriptors {
            more: random.below(40),
            milliseconds: 200 + random.below(800),
            step: Box::new(request(random)),
        },
        113..117 => {
            let full = random.below(2) == 0;
            let mut steps: Vec<Step> = (0..=random.below(3)).map(|_| request(random)).collect();
            if random.below(3) == 0 {
                steps.insert(
                    1,
                    Step::Restart {
                        kill: true,
                        traffic: false,
                    },
                );
            }
            Step::Disk { full, steps }
        }
        117..121 => Step::Space,
        121..126 => Step::SendSpace {
            packets: 1 + random.below(50),
        },
        126..129 => Step::Clock {
            seconds: pick(random, &[-3600, -5, 0, 0, 7, 3600]),
        },
        129 => Step::Busy {
            step: Box::new(request(random)),
        },
        130..132 => Step::NoCompiler {
            probe: probe(random),
        },
        132..134 => Step::Unreadable {
            probe: probe(random),
        },
        _ => Step::Wait {
            milliseconds: random.below(300),
        },
    }
}

fn probe(random: &mut Random) -> usize {
    random.below(PROBES.len() as u64) as usize
}

fn request(random: &mut Random) -> Step {
    let probe = probe(random);
    let traffic = random.below(3) > 0;
    match random.below(20) {
        0..7 => Step::Put {
            probe,
            seed: random.below(u64::MAX),
            traffic,
        },
        7..9 => Step::Refuse {
            probe,
            how: random.below(5),
            traffic,
        },
        9 => Step::Rollback {
            probe,
            back: random.below(3),
            traffic,
        },
        10 => Step::Delete { probe, traffic },
        11..14 => Step::Read { probe, traffic },
        14..16 => Step::HangUp {
            probe,
            bytes: random.below(6000) as usize,
            traffic,
        },
        _ => Step::Close { probe, traffic },
    }
}
