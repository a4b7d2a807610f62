//! The trial of a program before its attachment: a copy of the program, with maps of its own, runs
//! on sample frames. The trial counts nothing in the maps that windows are read from.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aya_obj::Function;
use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};
use twinprobe_ebpf_common::hook::Verdict;
use twinprobe_ebpf_common::{DirectionCost, EventKind, MapFamily, MapKind};

use crate::admit::admission::work_of;
use crate::admit::verdicts::Verdicts;
use crate::load::bind;
use crate::load::maps::ProbeMaps;
use crate::load::refusal::map_finding;
use crate::load::twins::with_program;
use crate::load::verifier::STATISTICS_BYTES;
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::{DirectionPlan, MapPlan};
use crate::read::events::ringbuf::RingBuffer;
use crate::sys::batch::{BatchCursor, map_lookup_batch};
use crate::sys::map;
use crate::sys::prog::{self, LOG_STATISTICS};
use crate::trial::prologue;
use crate::trial::run::{Changed, TrialOutcome, run};
use crate::trial::statistics::ProgramStatistics;

/// The most memory of each map of a copy, and of all of them together, in bytes: the sample frames
/// fill few entries.
const MAP_BYTES: u64 = 4 << 20;
const COPY_BYTES: u64 = 16 << 20;
/// The memory of the entries that are read at once, unless one entry needs more, in bytes.
const BATCH_BYTES: usize = 1 << 18;
/// The number of `bpf_clone_redirect`. A program that calls this helper function is not run,
/// because it sends a packet immediately, while other redirections happen after the program has
/// ended.
const CLONE_REDIRECT: i32 = 13;
const CALL: u8 = 0x85;
/// The most work of a run, which takes some milliseconds: a run can't be stopped.
const MAX_RUN: u64 = 1 << 22;

/// Tries the program of a planned direction. With `verdict: observe` refuses a program that changes
/// a frame, and one that writes to packets according to the kernel. Returns the cost.
pub fn cost(
    plan: &DirectionPlan,
    object: &ProbeObject,
    possible_cpus: usize,
) -> Result<DirectionCost, Rejection> {
    let source = &plan.code;
    let failed = |stage, message: String| Rejection::from(Finding::new(stage, source, message));
    let not_tried =
        |error: io::Error| failed(Stage::Load, format!("the program can't be tried: {error}"));
    let copy = match Copy::load(copied(plan, Some(possible_cpus)), object, source) {
        // The verifier may accept the program only with the map sizes of its source.
        Err(_) => Copy::load(copied(plan, None), object, source)?,
        Ok(copy) => copy,
    };
    let attach = plan.attach;
    let observe = attach.verdict == Verdict::Observe;
    let refused = |what: String| {
        let cure =
            "an observing program may only read; leave the packet alone, or use verdict enforce";
        failed(Stage::Admission, format!("{what}; {cure}"))
    };
    let is_tc = attach.hook.kind().has_skb();
    if observe && is_tc && prologue::writes(copy.program.as_fd()).map_err(not_tried)? {
        return Err(refused(
            "the kernel finds that the program writes to packets".into(),
        ));
    }
    let mut cost = DirectionCost {
        run: None,
        instructions: copy.function.instructions.len() as u64,
        verified: copy.statistics.verified,
        stack_bytes: copy.statistics.stack_bytes,
    };
    let instructions = &copy.function.instructions;
    let sends =
        |insn: &bpf_insn| (insn.code, insn.src_reg(), insn.imm) == (CALL, 0, CLONE_REDIRECT);
    if work_of(plan, instructions, cost.verified).most <= MAX_RUN && !instructions.iter().any(sends)
    {
        copy.touch_tables(possible_cpus);
        let mut streams = copy.streams().map_err(not_tried)?;
        let reset = || streams.iter_mut().try_for_each(FilledMap::empty);
        // The dispatcher ignores the return value of such a program.
        let passes = observe && Verdicts::of(instructions).stand(attach.hook, attach.verdict);
        match run(copy.program.as_fd(), attach.hook, observe, passes, reset).map_err(not_tried)? {
            TrialOutcome::Cost(run) => cost.run = Some(run),
            TrialOutcome::Changed(Changed { frame, what }) => {
                return Err(refused(format!(
                    "in a trial the program changed the {what} of a packet ({frame})"
                )));
            }
        }
    }
    Ok(cost)
}

/// Returns the plan of a copy that has no twin and that no metric reads. If `cpus` are given, large
/// maps are made smaller.
fn copied(plan: &DirectionPlan, cpus: Option<usize>) -> DirectionPlan {
    let map = |map: &MapPlan| {
        let mut map = MapPlan {
            private: false,
            ..map.clone()
        };
        if let Some(cpus) = cpus {
            map.spec
                .shrink(MAP_BYTES.min(COPY_BYTES / plan.maps.len() as u64), cpus);
            drop_surplus(&mut map);
        }
        map
    };
    DirectionPlan {
        attach: plan.attach,
        own_interface: None,
        code: plan.code.clone(),
        places: Arc::clone(&plan.places),
        entry: plan.entry.clone(),
        others: Vec::new(),
        frags: plan.frags,
        joined: plan.joined,
        maps: plan.maps.iter().map(map).collect(),
        counters: BTreeMap::new(),
        metrics: Vec::new(),
        sees: plan.sees,
        calls: plan.calls.clone(),
    }
}

/// Drops the first entries for which a smaller map has no room.
fn drop_surplus(map: &mut MapPlan) {
    let room = map.spec.max_entries as usize;
    if MapKind::from_bpf_type(map.spec.map_type).map(MapKind::family) == Some(MapFamily::Array) {
        let index = |key: &[u8]| {
            key.first_chunk()
                .map(|key| u32::from_ne_bytes(*key) as usize)
        };
        map.fill
            .retain(|entry| index(&entry.key).is_some_and(|index| index < room));
    }
    map.fill.truncate(room);
}

/// A loaded copy of a program, which has its own maps.
struct Copy {
    program: OwnedFd,
    function: Function,
    maps: ProbeMaps,
    statistics: ProgramStatistics,
}

impl Copy {
    fn load(plan: DirectionPlan, object: &ProbeObject, source: &str) -> Result<Self, Rejection> {
        let failed = |message| Rejection::from(Finding::new(Stage::Load, source, message));
        let resolved = bind::resolve(object).map_err(|error| failed(with_causes(&error)))?;
        let btf = prog::btf_load(&object.btf_blob).ok();
        let plan = Arc::new(plan);
        let maps = ProbeMaps::create(Arc::clone(&plan), btf.as_ref().map(AsFd::as_fd), None, None)
            .map_err(|error| map_finding(&plan, &error))?;
        let function = bind::link(resolved.into_owned(), &plan)
            .map_err(|error| failed(with_causes(&error)))?;
        let bound = bind::bind(&function, &maps.of_twin(0));
        let mut log = vec![0; STATISTICS_BYTES];
        let program = with_program(object, &plan, &btf, (&function, &bound), |program| {
            prog::prog_load(program, Some((LOG_STATISTICS, &mut log)))
        })
        .map_err(|error| {
            failed(format!(
                "the kernel does not load a copy of the program for a trial: {error}"
            ))
        })?;
        let statistics = ProgramStatistics::parse(&String::from_utf8_lossy(&log), &function);
        Ok(Self {
            program,
            function,
            maps,
            statistics,
        })
    }

    /// Reads all tables. The tables of a probe that has run for a while are in the processor's
    /// caches, as far as there is room. The memory of a new map is in no cache, so each first
    /// access would take a hundred nanoseconds and more.
    fn touch_tables(&self, possible_cpus: usize) {
        for (map, fds) in self.maps.each() {
            let kind = MapKind::from_bpf_type(map.spec.map_type);
            let Some(kind) =
                kind.filter(|kind| matches!(kind.family(), MapFamily::Array | MapFamily::Hash))
            else {
                continue;
            };
            let values = if kind.is_percpu() { possible_cpus } else { 1 };
            let key = map.spec.key_size as usize;
            let entry = key + (map.spec.value_size as usize).next_multiple_of(8) * values;
            let count = (map.spec.max_entries as usize)
                .min(BATCH_BYTES / entry)
                .max(1);
            let (mut keys, mut values) = (vec![0; count * key], vec![0; count * (entry - key)]);
            let (fd, mut cursor) = (fds.of_twin(0).as_fd(), BatchCursor::new(key));
            // If a kernel refuses the lookup, the figures are those of maps that are not in the
            // caches.
            while map_lookup_batch(fd, &mut cursor, &mut keys, &mut values, count, false)
                .result
                .is_ok()
            {}
        }
    }

    /// Returns the maps to which programs only add entries.
    fn streams(&self) -> io::Result<Vec<FilledMap<'_>>> {
        let mut streams = Vec::new();
        for (map, fds) in self.maps.each() {
            let fd = fds.of_twin(0);
            let family = MapKind::from_bpf_type(map.spec.map_type).map(MapKind::family);
            if EventKind::from_bpf_type(map.spec.map_type) == Some(EventKind::Ringbuf) {
                let ring = RingBuffer::open(&Arc::new(fd.try_clone()?), map.spec.max_entries)?;
                streams.push(FilledMap::Ring(ring));
            } else if family == Some(MapFamily::Fifo) {
                streams.push(FilledMap::Fifo(
                    fd.as_fd(),
                    vec![0; map.spec.value_size as usize],
                ));
            }
        }
        Ok(streams)
    }
}

/// A map that fills up during the runs. A program that finds no room in the map takes less time.
enum FilledMap<'a> {
    Ring(RingBuffer),
    /// A QUEUE or STACK, and room for a value.
    Fifo(BorrowedFd<'a>, Vec<u8>),
}

impl FilledMap<'_> {
    fn empty(&mut self) -> io::Result<()> {
        match self {
            Self::Ring(ring) => {
                ring.read(usize::MAX, |_| {});
            }
            Self::Fifo(map, value) => while map::map_lookup_and_delete(*map, &[], value)? {},
        }
        Ok(())
    }
}
