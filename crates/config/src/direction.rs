//! `ingress` and `egress`: the fields of a direction, and their rules.

pub mod code;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde_json::Value;
use twinprobe_api::DirectionDocument;
use twinprobe_ebpf_common::hook::{Direction, Hook, Position, Verdict, XdpMode};
use twinprobe_ebpf_common::request::AttachRequest;

use self::code::{Code, DEFINES_LIMIT};
use crate::metric::{self, MetricConfig};
use crate::validate::findings::{Defaults, Findings};
use crate::validate::names;

/// The highest limit of a program's cost: a second.
const MAX_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionConfig {
    /// The hook of the program, and its position there. Only TC has positions.
    pub attach: AttachRequest,
    pub code: Code,
    /// The function for packets; `None` if the source or object has only one function, or only one
    /// that fits the hook.
    pub entry: Option<String>,
    /// The initial values of variables, in the form of documents.
    pub variables: BTreeMap<String, Value>,
    /// The numbers of entries of maps, which replace the numbers in their definitions.
    pub max_entries: BTreeMap<String, u32>,
    /// The most nanoseconds that the program may take for a packet in a trial; `None` for no limit.
    pub max_ns_per_packet: Option<u64>,
    /// The metrics, no two with the same name. Metrics of one map agree on `snapshot` and `init`.
    pub metrics: Vec<MetricConfig>,
}

/// Checks a direction and adds its mistakes to `findings`. Invalid fields have a placeholder in the
/// result.
pub fn check(
    direction: Direction,
    document: &DirectionDocument,
    defaults: &Defaults,
    findings: &mut Findings,
) -> DirectionConfig {
    let at = direction.name();
    let (hook, xdp_mode) = hook(direction, document, findings);
    let verdict = document.verdict.as_deref();
    let verdict = findings.choose(
        &format!("{at}.verdict"),
        "verdict",
        verdict,
        &Verdict::NAMES,
    );
    let verdict = verdict.unwrap_or(Verdict::Observe);
    let priority = findings.priority(&format!("{at}.priority"), document.priority);
    let priority = priority.unwrap_or(defaults.priority);
    let position = position(at, hook, document, defaults, findings);
    let code = code::check(at, document, findings);
    let sample = sample(at, document, findings);
    let max_ns_per_packet = document.max_ns_per_packet;
    if let Some(limit) = max_ns_per_packet.filter(|limit| !(1..=MAX_NS).contains(limit)) {
        findings.add(
            format!("{at}.max_ns_per_packet"),
            format!("{limit} is not a limit; use 1 to {MAX_NS}"),
        );
    }
    let metrics = metric::check_all(
        at,
        document.metrics.as_deref().unwrap_or_default(),
        defaults,
        findings,
    );
    let attach = AttachRequest {
        hook,
        xdp_mode,
        verdict,
        sample,
        priority,
        position,
    };
    let entry = document.entry.clone();
    let variables = variables(at, document, findings);
    let max_entries = max_entries(at, document, findings);
    DirectionConfig {
        attach,
        code,
        entry,
        variables,
        max_entries,
        max_ns_per_packet,
        metrics,
    }
}

fn hook(
    direction: Direction,
    document: &DirectionDocument,
    findings: &mut Findings,
) -> (Hook, XdpMode) {
    let at = direction.name();
    let field = format!("{at}.mode");
    let mode = findings.choose(&field, "mode", document.mode.as_deref(), &XdpMode::NAMES);
    let choices = Hook::choices(direction);
    let name = document.hook.as_deref().unwrap_or(choices[0].0);
    let hook = match choices.iter().find(|(word, _)| *word == name) {
        Some((_, hook)) => *hook,
        None => {
            let known = choices
                .iter()
                .map(|(word, _)| *word)
                .collect::<Vec<_>>()
                .join(" or ");
            let message = match (is_hook(name), direction) {
                (true, Direction::Ingress) => {
                    format!("{name} sees outgoing packets only; use {known}")
                }
                (true, Direction::Egress) => {
                    format!("{name} sees incoming packets only; use {known}")
                }
                (false, _) => format!("unknown hook {}; use {known}", names::quote(name)),
            };
            findings.add(format!("{at}.hook"), message);
            if !is_hook(name) {
                return (Hook::Xdp, XdpMode::Auto);
            }
            choices[0].1
        }
    };
    if document.mode.is_some() && !hook.has_modes() {
        findings.add(field, "mode belongs to the hook xdp; leave it out with tc");
    }
    (hook, mode.unwrap_or(XdpMode::Auto))
}

/// Returns `n` if the program sees one packet in `n`; `None` if it sees all packets.
fn sample(at: &str, document: &DirectionDocument, findings: &mut Findings) -> Option<NonZeroU32> {
    let one_in = document.sample?;
    let sample = u32::try_from(one_in).ok().and_then(NonZeroU32::new);
    if sample.is_none() {
        let message = format!(
            "one packet in {one_in} can't be chosen; use 1 to {}",
            u32::MAX
        );
        findings.add(format!("{at}.sample"), message);
    }
    sample
}

/// Tells whether a direction has a hook of this name.
fn is_hook(name: &str) -> bool {
    Direction::ALL
        .into_iter()
        .flat_map(Hook::choices)
        .any(|(word, _)| *word == name)
}

fn position(
    at: &str,
    hook: Hook,
    document: &DirectionDocument,
    defaults: &Defaults,
    findings: &mut Findings,
) -> Position {
    let field = format!("{at}.position");
    // An unknown hook is replaced by xdp, which has no positions. The hook that was meant may have
    // positions.
    let is_known = document.hook.as_deref().is_none_or(is_hook);
    if document.position.is_some() && is_known && !hook.has_positions() {
        let message = "position orders programs at the hook tc, but xdp has only one program: leave it out, or use tc";
        findings.add(field, message);
        return defaults.position;
    }
    findings
        .position(&field, document.position.as_deref())
        .unwrap_or(defaults.position)
}

/// Checks the names of variables; their types are the program's.
fn variables(
    at: &str,
    document: &DirectionDocument,
    findings: &mut Findings,
) -> BTreeMap<String, Value> {
    let field = format!("{at}.variables");
    let variables = document.variables.clone().unwrap_or_default();
    if variables.len() > DEFINES_LIMIT {
        let message = format!(
            "{} variables have values; the limit is {DEFINES_LIMIT}",
            variables.len()
        );
        findings.add(&field, message);
    }
    for name in variables
        .keys()
        .filter(|name| !names::is_c_identifier(name))
    {
        findings.add(
            &field,
            format!("{} is not a C identifier", names::quote(name)),
        );
    }
    variables
}

/// Checks the numbers of entries of maps; the program has the maps.
fn max_entries(
    at: &str,
    document: &DirectionDocument,
    findings: &mut Findings,
) -> BTreeMap<String, u32> {
    let field = format!("{at}.max_entries");
    let counts = document.max_entries.clone().unwrap_or_default();
    if counts.len() > DEFINES_LIMIT {
        let message = format!(
            "{} maps have numbers of entries; {DEFINES_LIMIT} are the limit",
            counts.len()
        );
        findings.add(&field, message);
    }
    for (map, count) in &counts {
        if !names::is_c_identifier(map) {
            findings.add(
                &field,
                format!("{} is not a C identifier", names::quote(map)),
            );
        } else if *count == 0 {
            findings.add(
                format!("{field}.{map}"),
                "0 is not a number of entries; a map has 1 or more",
            );
        }
    }
    counts
}
