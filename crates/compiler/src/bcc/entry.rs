//! The function of a source that is called for each packet.

use std::collections::BTreeMap;

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use crate::bcc::scan::{Function, Scan};
use twinprobe_ebpf_common::unit::Unit;

/// The functions that conventions name: DeChainy's, and that of Polycube's dynmon.
pub const CONVENTIONAL: [&str; 2] = ["handler", HANDLE_RX];
pub const HANDLE_RX: &str = "handle_rx";
/// The names of context types: the macro for the context of the unit's hook, and the contexts of
/// all hooks.
const CONTEXTS: [&str; 3] = ["CTXTYPE", "xdp_md", "__sk_buff"];
/// The prefixes of functions that BCC attaches to functions of the kernel.
const TRACING: [&str; 8] = [
    "kprobe__",
    "kretprobe__",
    "tracepoint__",
    "raw_tracepoint__",
    "kfunc__",
    "kretfunc__",
    "lsm__",
    "syscall__",
];
/// Contexts of programs that do not see packets, and the kinds of these programs.
const FOREIGN: [(&str, &str); 8] = [
    ("pt_regs", "traces a function of the kernel"),
    (
        "bpf_raw_tracepoint_args",
        "traces a tracepoint of the kernel",
    ),
    ("bpf_perf_event_data", "samples a hardware counter"),
    ("bpf_sock_ops", "follows sockets"),
    ("bpf_sock_addr", "decides on addresses of sockets"),
    ("bpf_sock", "decides on sockets"),
    ("sk_msg_md", "decides on messages of sockets"),
    ("sk_reuseport_md", "selects sockets"),
];

/// Tells whether a packet's hook may call such a function.
pub fn is_candidate(function: &Function<'_>) -> bool {
    let conventional = CONVENTIONAL.contains(&function.name);
    let fits = function
        .context()
        .is_some_and(|context| CONTEXTS.contains(&context));
    fits && (conventional || !function.is_static && function.parameters.len() == 1)
}

/// Chooses the function for the packets of the unit's hook: the one in the configuration, else one
/// with a conventional name, else the only one that no table calls, or the function named after the
/// direction.
pub fn choose<'s, 'a>(scan: &'s Scan<'a>, unit: &Unit<'_>) -> Result<&'s Function<'a>, Finding> {
    let Unit { hook, field, .. } = *unit;
    let refuse = |line, message| refusal(field, line, message);
    if let Some(function) = scan.functions.iter().find(|function| traces(function)) {
        let what = foreign(function).unwrap_or("traces a function of the kernel");
        let message = format!(
            "{} {what}; probes see packets: write a function such as int count(struct CTXTYPE *ctx)",
            function.name
        );
        return Err(refuse(function.line, message));
    }
    let candidates = candidates(scan, unit);
    let named = |name: &str| {
        candidates
            .iter()
            .find(|function| function.name == name)
            .copied()
    };
    let list = || {
        candidates
            .iter()
            .map(|function| function.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let direction = if hook.direction() == "ingress" {
        "handle_ingress"
    } else {
        "handle_egress"
    };
    let by_convention = || CONVENTIONAL.into_iter().chain([direction]).find_map(named);
    let chosen = match (unit.entry, candidates.as_slice()) {
        (_, []) => {
            let message = "no entry point: the source needs a function for packets, such as handler(struct CTXTYPE *ctx, struct \
                           pkt_metadata *md), handle_rx with the same parameters, or int count(struct CTXTYPE *ctx), which must \
                           not be static";
            return Err(refuse(0, message.to_owned()));
        }
        (Some(name), _) => named(name).ok_or_else(|| {
            refuse(0, format!("entry is {name}, but the source's functions for packets are {}", list()))
        })?,
        (None, [only]) => only,
        (None, _) => by_convention().ok_or_else(|| {
            let message = format!(
                "several functions for packets: {}; choose one by the field entry of the direction, name those that a table \
                 of programs leads to in the field calls, or make those that it calls static",
                list()
            );
            refuse(candidates[1].line, message)
        })?,
    };
    check_hook(chosen, hook, field)?;
    Ok(chosen)
}

/// Returns the functions among which to choose. If the configuration names none, functions that a
/// table calls are left out, unless all of them are called.
fn candidates<'s, 'a>(scan: &'s Scan<'a>, unit: &Unit<'_>) -> Vec<&'s Function<'a>> {
    let mut candidates: Vec<&Function<'_>> = scan
        .functions
        .iter()
        .filter(|function| is_candidate(function))
        .collect();
    if unit.entry.is_none() {
        let called: Vec<&String> = unit.calls.values().flat_map(BTreeMap::values).collect();
        let is_called =
            |function: &&Function<'_>| called.iter().any(|called| *called == function.name);
        if !candidates.iter().all(is_called) {
            candidates.retain(|function| !is_called(function));
        }
    }
    candidates
}

/// Refuses a function with a context for another hook.
pub fn check_hook(function: &Function<'_>, hook: Hook, field: &str) -> Result<(), Finding> {
    let other = match (function.context(), hook.kind()) {
        (Some("xdp_md"), ProgramKind::Tc) => Some("xdp"),
        (Some("__sk_buff"), ProgramKind::Xdp) => Some("tc"),
        _ => None,
    };
    match other {
        None => Ok(()),
        Some("xdp") if hook.direction() == "egress" => {
            let message = format!(
                "{} takes a struct xdp_md, and XDP sees incoming packets only; write struct CTXTYPE",
                function.name
            );
            Err(refusal(field, function.line, message))
        }
        Some(other) => {
            let context = function.context().unwrap_or_default();
            let message = format!(
                "{} takes a struct {context}, which the hook {other} has; set hook to {other}",
                function.name
            );
            Err(refusal(field, function.line, message))
        }
    }
}

fn refusal(field: &str, line: u32, message: String) -> Finding {
    let finding = Finding::new(Stage::Compile, field, message);
    if line == 0 {
        finding
    } else {
        finding.at(line, None)
    }
}

/// Tells whether a function is for a hook that has no packets.
pub fn traces(function: &Function<'_>) -> bool {
    TRACING
        .iter()
        .any(|prefix| function.name.starts_with(prefix))
        || !function.is_static && foreign(function).is_some()
}

fn foreign(function: &Function<'_>) -> Option<&'static str> {
    let context = function.context()?;
    FOREIGN
        .iter()
        .find(|(name, _)| *name == context)
        .map(|(_, what)| *what)
}
