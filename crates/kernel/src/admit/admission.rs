//! The admission of one direction of a probe, with the line of the source that each refusal is about.

use aya_obj::generated::bpf_insn;
use aya_obj::{Function, Object};
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_ebpf_common::hook::Verdict;

use crate::admit::flow::{self, Act};
use crate::admit::instruction::{Index, Unknown};
use crate::admit::rounds::{MAX_ROUNDS, Rounds, rounds};
use crate::admit::{maps, references};
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::DirectionPlan;

/// The most findings of one refusal.
const MAX_FINDINGS: usize = 20;

/// The hint for those who want to change packets.
const ENFORCE: &str = "a program with verdict: observe may only read packets; leave it out, or set verdict: enforce, \
    which needs the role admin";

/// Refuses references that the source of `object` has written itself. `unbound` is its program before the relocation.
pub fn references(plan: &DirectionPlan, object: &ProbeObject, unbound: &Object) -> Result<(), Rejection> {
    let source = &plan.code;
    refuse(unbound.functions.values().flat_map(|function| {
        references::written(function)
            .map(|(at, unknown)| finding(source, object, function, at, &describe(&Act::Unknown(unknown))))
    }))
}

/// Refuses a relocated program that may do what its configuration does not allow, and maps that no monitor needs.
pub fn program(plan: &DirectionPlan, object: &ProbeObject, function: &Function) -> Result<(), Rejection> {
    let source = &plan.code;
    let program = &function.instructions;
    let mut acts: Vec<(Index, Act)> =
        references::unknown(program).map(|(at, unknown)| (at, Act::Unknown(unknown))).collect();
    if acts.is_empty() {
        let unaligned = maps::without_atomics(plan.maps.iter().map(|map| &map.spec));
        acts.extend(flow::acts(program, plan.attach.hook.kind(), &unaligned));
    }
    acts.retain(|(_, act)| match act {
        Act::WritesPacket | Act::WritesContext | Act::HasPacketWritten(_) | Act::CallsChange(_) => {
            plan.attach.verdict == Verdict::Observe
        }
        // A callback of a timer runs beyond the grace period of its twin.
        Act::CallsTimer(_) => plan.has_twins(),
        Act::WritesAnywhere
        | Act::Unaligned
        | Act::CallsHelper(_)
        | Act::CallsBackAnything
        | Act::Unknown(_)
        | Act::Repeats(_)
        | Act::TooDeep
        | Act::TooLong => true,
    });
    if acts.is_empty() {
        let Rounds { most, beyond } = rounds_of(plan, program);
        acts.extend(beyond.map(|at| (at, Act::Repeats(most))));
    }
    let of_maps = plan.maps.iter().filter_map(|map| {
        let message = maps::refusal(&map.name, &map.spec)?;
        Some(plan.about_map(Stage::Admission, &map.name, message))
    });
    refuse(acts.iter().map(|(at, act)| finding(source, object, function, *at, &describe(act))).chain(of_maps))
}

/// Returns the rounds of the linked program of a direction.
pub fn rounds_of(plan: &DirectionPlan, program: &[bpf_insn]) -> Rounds {
    let entries = plan.maps.iter().map(|map| {
        let inner = map.spec.inner.as_ref().map_or(0, |inner| inner.max_entries);
        u64::from(map.spec.max_entries.max(inner))
    });
    rounds(program, &entries.collect::<Vec<_>>())
}

fn refuse(findings: impl Iterator<Item = Finding>) -> Result<(), Rejection> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in findings {
        // Several instructions of one line make the same finding.
        if !all.contains(&finding) {
            all.push(finding);
        }
        if all.len() == MAX_FINDINGS {
            break;
        }
    }
    if all.is_empty() { Ok(()) } else { Err(all.into()) }
}

fn finding(source: &str, object: &ProbeObject, function: &Function, at: Index, message: &str) -> Finding {
    let finding = Finding::new(Stage::Admission, source, message);
    match (object.source_position(function, at), object.position(function, at)) {
        (Some((line, column)), _) => finding.at(line, Some(column)),
        // The source says by `#line` that it was made from another file.
        (None, Some((file, line))) => {
            Finding::new(Stage::Admission, source, format!("in {file}:{line}: {message}"))
        }
        (None, None) => finding,
    }
}

fn describe(act: &Act) -> String {
    match act {
        Act::WritesPacket => format!("the program writes to the packet: {ENFORCE}"),
        Act::WritesContext => {
            format!("the program writes to its context, which is the packet's metadata: {ENFORCE}")
        }
        Act::HasPacketWritten(helper) => {
            format!("the program lets {helper} write to the packet: give it a buffer on the stack; {ENFORCE}")
        }
        Act::CallsChange(helper) => {
            format!("{helper} changes the packet, its metadata or its way: {ENFORCE}")
        }
        Act::CallsTimer(helper) => format!(
            "{helper} is not possible in a probe with snapshots: a timer would write to a window that has ended; \
             leave it out, or leave snapshot out of all metrics"
        ),
        Act::CallsHelper(number) => format!(
            "the helper function {number} is not among those that monitors need; leave it out (linux/bpf.h has the \
             numbers)"
        ),
        Act::WritesAnywhere => "the program writes through a register without a value; leave it out".into(),
        Act::Unaligned => "this processor stops at an atomic operation on a value of this LPM_TRIE, which is not aligned; let \
             the address in the key have a multiple of 8 bytes, of which the last may be unused, or do without the atomic \
             operation"
            .into(),
        Act::CallsBackAnything => {
            "the function that is called back can't be told; name one function in this call".into()
        }
        Act::Unknown(Unknown::Foreign) => {
            "the program refers to an object of the kernel by a number of its own; refer to a map or function by its \
             name"
                .into()
        }
        Act::Unknown(Unknown::KernelFunction) => {
            "the program calls a function of the kernel (kfunc), which no monitor needs; leave it out".into()
        }
        Act::Unknown(Unknown::Instruction) => {
            "this instruction is damaged, or it is not known here; leave it out".into()
        }
        Act::Repeats(most) => {
            let most = if *most == u64::MAX { "any number of".into() } else { most.to_string() };
            format!(
                "loops in loops may take {most} rounds for one packet, and {MAX_ROUNDS} are possible; do without one of \
                 them, or give bpf_loop constants"
            )
        }
        Act::TooDeep => "calls of functions lead too deep; the kernel allows 8 functions at once".into(),
        Act::TooLong => {
            "the program is too long to prove that it only observes; make it smaller, or its loops simpler".into()
        }
    }
}
