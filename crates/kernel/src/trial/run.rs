//! Runs of a program on the sample frames by `BPF_PROG_TEST_RUN`: the time that they take, and the
//! frames after them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use twinprobe_ebpf_common::RunCost;
use twinprobe_ebpf_common::hook::Hook;

use crate::sys::asm;
use crate::sys::prog::{self, ProgLoad};
use crate::trial::frames::{self, EthernetFrame};

/// The number of runs on each frame. A run takes some microseconds, nearly all of them outside of
/// the program. A program that needs more than [`LONG`] for fewer runs has at least [`FEW`] runs.
const RUNS: usize = 64;
const FEW: usize = 5;
/// The time in nanoseconds, as the kernel counts it. A thread that must wait for a CPU loses no
/// runs by this count.
const LONG: u64 = 4_000_000;
/// The time after which no further run begins. A run itself can't be stopped.
const WHOLE: Duration = Duration::from_secs(2);
/// Room for a frame that a program has made longer, and for `struct __sk_buff`, in bytes.
const ROOM: usize = 8 << 10;
const CONTEXT: usize = 512;

/// The change of a frame by a program.
#[derive(Debug)]
pub struct Changed {
    pub frame: &'static str,
    pub what: &'static str,
}

/// The outcome of the runs.
#[derive(Debug)]
pub enum TrialOutcome {
    /// The cost. No run has changed a frame, or the caller did not ask for changes.
    Cost(RunCost),
    Changed(Changed),
}

/// Runs `program` on each sample frame. An empty program runs beside it each time and measures the
/// time of the calls. Calls `reset` before each run. With `observe`, stops at the first frame that
/// the program changes; with `passes`, at the first frame that it does not let pass. Each frame has
/// one run at least, unless the time is over.
pub fn run(
    program: BorrowedFd<'_>,
    hook: Hook,
    observe: bool,
    passes: bool,
    mut reset: impl FnMut() -> io::Result<()>,
) -> io::Result<TrialOutcome> {
    let pass = asm::pass_program(hook.pass());
    let idle = prog::prog_load(&ProgLoad::new("tp_idle", hook.kind(), &pass), None)?;
    let mut dearest = RunCost::default();
    let begun = Instant::now();
    let flows: Vec<Vec<EthernetFrame>> =
        (0..RUNS).map(|flow| frames::samples(flow as u8)).collect();
    for (kind, EthernetFrame { name, .. }) in flows[0].iter().enumerate() {
        if kind > 0 && begun.elapsed() >= WHOLE {
            break;
        }
        let (mut idle_times, mut times) = (Vec::with_capacity(RUNS), Vec::with_capacity(RUNS));
        let mut spent = 0;
        while times.len() < RUNS
            && (times.len() < FEW || spent < LONG)
            && (times.is_empty() || begun.elapsed() < WHOLE)
        {
            let frame = &flows[times.len()][kind];
            let before = FrameRun::of(idle.as_fd(), hook, frame)?;
            reset()?;
            let after = FrameRun::of(program, hook, frame)?;
            if observe && let Some(what) = after.differs_from(&before) {
                return Ok(TrialOutcome::Changed(Changed { frame: name, what }));
            }
            if passes && after.verdict != hook.pass() {
                return Ok(TrialOutcome::Changed(Changed {
                    frame: name,
                    what: "way",
                }));
            }
            idle_times.push(before.nanoseconds);
            times.push(after.nanoseconds);
            spent += u64::from(after.nanoseconds);
        }
        let ([_, idle, _], [low, median, high]) = (quartiles(idle_times), quartiles(times));
        let ns_per_packet = u64::from(median.saturating_sub(idle).max(1));
        if ns_per_packet > dearest.ns_per_packet {
            let (noise_ns, frame) = (u64::from(high - low), (*name).to_owned());
            dearest = RunCost {
                ns_per_packet,
                noise_ns,
                frame,
            };
        }
    }
    Ok(TrialOutcome::Cost(dearest))
}

/// Returns the quartiles of at least one number.
fn quartiles(mut times: Vec<u32>) -> [u32; 3] {
    times.sort_unstable();
    [1, 2, 3].map(|quarter| times[(times.len() - 1) * quarter / 4])
}

/// One run of a program on a frame.
struct FrameRun {
    nanoseconds: u32,
    verdict: i32,
    /// The frame as the program has left it; `None` if it does not fit into [`ROOM`].
    frame: Option<Vec<u8>>,
    /// The frame's metadata, which only TC shows.
    context: Vec<u8>,
}

impl FrameRun {
    fn of(program: BorrowedFd<'_>, hook: Hook, frame: &EthernetFrame) -> io::Result<Self> {
        let mut after = vec![0; ROOM];
        let mut context = vec![0; if hook.kind().has_skb() { CONTEXT } else { 0 }];
        match prog::prog_test_run(program, &frame.bytes, &mut after, &mut context) {
            Ok(run) => {
                after.truncate(run.size);
                Ok(Self {
                    nanoseconds: run.nanoseconds,
                    verdict: run.result.cast_signed(),
                    frame: Some(after),
                    context,
                })
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Ok(Self {
                nanoseconds: 0,
                verdict: 0,
                frame: None,
                context,
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the name of the part of the frame that differs from `before`; `None` if the frames
    /// are equal.
    fn differs_from(&self, before: &Self) -> Option<&'static str> {
        let length = |run: &Self| run.frame.as_ref().map(Vec::len);
        match () {
            () if length(self) != length(before) => Some("length"),
            () if self.frame != before.frame => Some("content"),
            () if self.context != before.context => Some("metadata"),
            () => None,
        }
    }
}
