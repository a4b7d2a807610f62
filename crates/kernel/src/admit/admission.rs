//! The admission of one direction of a probe. Each refusal names a line of the source.

use std::collections::{BTreeMap, BTreeSet};

use aya_obj::generated::bpf_insn;
use aya_obj::{Function, Object};
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_ebpf_common::hook::Verdict;

use crate::admit::flow;
use crate::admit::flow::act::Act;
use crate::admit::flow::formats::formats;
use crate::admit::helpers::names;
use crate::admit::instruction::{InstructionIndex, Unknown};
use crate::admit::maps::MapFacts;
use crate::admit::work::weight::HELPER;
use crate::admit::work::{MAX_WORK, Work, work};
use crate::admit::{maps, references};
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::DirectionPlan;
use crate::sys::asm::HELPER_TAIL_CALL;

/// The most findings of one refusal.
const MAX_FINDINGS: usize = 20;

/// The hint for users who want to change packets.
const ENFORCE: &str = "a program with verdict: observe may only read packets; leave it out, or set verdict: enforce, \
    which needs the role admin";

/// The words for values that reveal the address of a kernel object.
const ADDRESS: &str = "a pointer, or a number that was made of one,";
/// The helper function that calls another program.
const TAIL_CALL: u32 = HELPER_TAIL_CALL as u32;
/// The hint for users who want a number.
const LENGTH: &str =
    "the difference of two pointers to the packet is a length, which may be stored";

/// Refuses references to maps or functions that the source of `object` has written itself.
/// `unbound` is the program of the source before the relocation.
pub fn references(
    plan: &DirectionPlan,
    object: &ProbeObject,
    unbound: &Object,
) -> Result<(), Rejection> {
    let source = &plan.code;
    refuse(unbound.functions.values().flat_map(|function| {
        references::written(function).map(|(at, unknown)| {
            let text = describe(&Act::Unknown(unknown));
            object.finding(Stage::Admission, source, function, at, &text)
        })
    }))
}

/// Refuses relocated programs that may do more than their configuration allows, and maps that no
/// monitor needs.
///
/// Returns the slots of the stack that must be [cleared](crate::load::clear).
pub fn program(
    plan: &DirectionPlan,
    object: &ProbeObject,
    function: &Function,
) -> Result<BTreeMap<InstructionIndex, u64>, Rejection> {
    let source = &plan.code;
    let program = &function.instructions;
    let mut acts: Vec<(InstructionIndex, Act)> = references::unknown(program)
        .map(|(at, unknown)| (at, Act::Unknown(unknown)))
        .collect();
    let mut unwritten = BTreeMap::new();
    if acts.is_empty() {
        let conduct = flow::conduct_with(
            program,
            plan.attach.hook.kind(),
            &facts(plan),
            &formats(program, &plan.maps),
        );
        acts.extend(conduct.acts);
        unwritten = conduct.unwritten;
    }
    acts.retain(|(_, act)| match act {
        Act::WritesPacket | Act::WritesContext | Act::HasPacketWritten(_) | Act::CallsChange(_) => {
            plan.attach.verdict == Verdict::Observe
        }
        // A callback of a timer runs beyond the grace period of its twin.
        Act::CallsTimer(_) => plan.has_twins(),
        Act::WritesAnywhere
        | Act::ReadsKernel
        | Act::ReadsMap
        | Act::StoresAddress
        | Act::ShowsAddress(_)
        | Act::ReturnsAddress
        | Act::AddsToWalk(_)
        | Act::StartsAgain
        | Act::Unaligned
        | Act::CallsHelper(_)
        | Act::CallsBackAnything
        | Act::Unknown(_)
        | Act::WorksLong(_)
        | Act::TooDeep
        | Act::TooLong => true,
    });
    if acts.is_empty() {
        // The least work of the program. The daemon refuses a program whose least work exceeds the
        // limit without the verifier.
        acts.extend(too_much_work(plan, program, 1));
    }
    let of_maps = plan.maps.iter().filter_map(|map| {
        let message = maps::refusal(&map.name, &map.spec)?;
        Some(plan.about_map(Stage::Admission, &map.name, message))
    });
    let of_acts = acts
        .iter()
        .map(|(at, act)| object.finding(Stage::Admission, source, function, *at, &describe(act)));
    refuse(of_acts.chain(of_maps))?;
    Ok(unwritten)
}

/// Returns the facts about the maps of a plan, in the order of the plan.
pub fn facts(plan: &DirectionPlan) -> Vec<MapFacts> {
    let held: BTreeSet<usize> = plan
        .maps
        .iter()
        .flat_map(|map| map.slots.values().copied())
        .collect();
    let maps = plan.maps.iter().enumerate();
    maps.map(|(index, map)| MapFacts::of(&map.spec, held.contains(&index)))
        .collect()
}

/// Refuses a program that may work too long for one packet, once the verifier has followed
/// `verified` of its instructions.
pub fn verified(
    plan: &DirectionPlan,
    object: &ProbeObject,
    function: &Function,
    verified: u64,
) -> Result<(), Rejection> {
    let act = too_much_work(plan, &function.instructions, verified);
    refuse(act.iter().map(|(at, act)| {
        object.finding(Stage::Admission, &plan.code, function, *at, &describe(act))
    }))
}

fn too_much_work(
    plan: &DirectionPlan,
    program: &[bpf_insn],
    verified: u64,
) -> Option<(InstructionIndex, Act)> {
    let Work { most, beyond } = work_of(plan, program, verified);
    beyond.map(|at| (at, Act::WorksLong(most)))
}

/// Returns the work of the linked program of a direction; `verified` is the number of instructions
/// that the verifier has followed.
pub fn work_of(plan: &DirectionPlan, program: &[bpf_insn], verified: u64) -> Work {
    work(program, &facts(plan), verified)
}

fn refuse(findings: impl Iterator<Item = Finding>) -> Result<(), Rejection> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in findings {
        // Several instructions of one line may cause the same finding, which is reported once.
        if !all.contains(&finding) {
            all.push(finding);
        }
        if all.len() == MAX_FINDINGS {
            break;
        }
    }
    if all.is_empty() {
        Ok(())
    } else {
        Err(all.into())
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
        Act::ReadsKernel => "the program reads a structure of the kernel through the pointer that a bpf_skc_to_ function \
             returned; read the fields of struct bpf_sock or struct bpf_tcp_sock, which bpf_sk_fullsock and bpf_tcp_sock \
             return"
            .into(),
        Act::ReadsMap => "the program reads the kernel's own structure of a map; read an entry of the map, which \
             bpf_map_lookup_elem returns"
            .into(),
        Act::StoresAddress => format!("the program stores {ADDRESS} where others can read it; {LENGTH}"),
        Act::ShowsAddress(helper) => format!(
            "the program gives {ADDRESS} to {helper}, which shows it: leave it out; where the size of a buffer is not a constant, \
             compare that size with the buffer's just before, or keep the buffer in a map's value, because pointers beside it on the \
             stack count; {LENGTH}"
        ),
        Act::ReturnsAddress => {
            format!("the program returns {ADDRESS} to the kernel; return a verdict")
        }
        Act::AddsToWalk(helper) => format!(
            "{helper} may add entries to a map while bpf_for_each_map_elem iterates over them, which may never end; write \
             through the pointer to the value, or note the keys and add the entries afterwards"
        ),
        Act::StartsAgain => "the function that a timer calls starts a timer, which may keep a processor; start timers for \
             packets only"
            .into(),
        Act::CallsHelper(TAIL_CALL) => "bpf_tail_call works only through a table whose programs the source names: \
             .values = { [0] = (void *)&program } behind SEC(\".maps\")"
            .into(),
        Act::CallsHelper(number) => match names::name(*number) {
            Some(name) => {
                format!("the helper function {name} is not allowed: monitors do not need it; leave it out")
            }
            None => format!("the helper function {number} is not allowed: monitors do not need it; leave it \
                out"),
        },
        Act::WritesAnywhere => "the program writes through a register without a value; leave it out".into(),
        Act::Unaligned => "this processor stops at an atomic operation on a value of this LPM_TRIE, which is not aligned; let \
             the address in the key have a multiple of 8 bytes, of which the last may be unused, or do without the atomic \
             operation"
            .into(),
        Act::CallsBackAnything => {
            "the callback of this call is unknown; name one function in this call".into()
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
        Act::WorksLong(most) => {
            let most = if *most == u64::MAX { "any number of".into() } else { most.to_string() };
            format!(
                "the loops of the program may take {most} instructions for one packet (a call of a helper function counts \
                 as {HELPER} or more), and the limit is {MAX_WORK}; do without one of them, do less in each round, or give \
                 bpf_loop constants"
            )
        }
        Act::TooDeep => "calls of functions are nested too deep; the kernel allows 8 functions at once".into(),
        Act::TooLong => {
            "the program is too long to prove that it only observes; make it smaller, or its loops simpler".into()
        }
    }
}
