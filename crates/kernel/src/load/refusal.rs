//! Explanations of the kernel's refusals, with the line of the source that each is about.

use aya_obj::Function;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};

use crate::load::verifier;
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::DirectionPlan;
use crate::sys::call::KernelError;

/// The most characters of a source line that a finding quotes.
const MAX_QUOTE: usize = 120;

pub fn map_finding(plan: &DirectionPlan, error: &KernelError) -> Finding {
    let hint = match error.errno() {
        libc::EINVAL => {
            "; its type, sizes, flags or max_entries do not go together (a key of LPM_TRIE has 4 bytes for its length, and 1 to 256 \
             for the prefix), or this kernel has no maps of its type"
        }
        libc::E2BIG | libc::ENOMEM => {
            "; it is larger than the kernel allows, lower max_entries or the sizes"
        }
        libc::EPERM => {
            "; the daemon needs CAP_BPF, and CAP_SYS_RESOURCE where maps count as locked memory (before Linux 5.11)"
        }
        _ => "",
    };
    let map = error.object.strip_prefix("map ").unwrap_or_default();
    plan.about_map(Stage::Load, map, format!("{}{hint}", with_causes(error)))
}

pub fn refused(
    object: &ProbeObject,
    function: &Function,
    source: &str,
    refusal: verifier::VerifierRefusal,
) -> Rejection {
    let mut finding = match refusal.instruction {
        Some(at) => object.finding(Stage::Load, source, function, at as usize, &refusal.message),
        None => Finding::new(Stage::Load, source, refusal.message),
    };
    if let Some(quoted) = refusal.quoted.filter(|quoted| !quoted.trim().is_empty()) {
        let quoted: String = quoted.chars().take(MAX_QUOTE).collect();
        finding.message = format!("{} (at `{quoted}`)", finding.message);
    }
    Rejection::from(finding).with_log(refusal.log)
}
