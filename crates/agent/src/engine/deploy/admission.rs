//! The admission of loaded programs: the daemon tries each program on sample packets, and refuses a
//! program that costs more than its configuration allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_ebpf_common::{DirectionCost, ProbeCost};
use twinprobe_kernel::{Kernel, LoadedDirection, ProbeObject};

use crate::engine::deploy::cause::Occasion;
use crate::engine::deploy::trials::{TrialKey, Trials};
use crate::engine::probe::probe::Probe;
use twinprobe_config::ProbeConfig;

/// The number of trials before a program is refused for its cost. Other work on the machine can
/// only make a trial slower.
const TRIALS: usize = 3;

/// Tries the programs, or uses an earlier trial unless `anew`, and returns their cost. A program
/// that costs too much is refused in a new request. If a start of the daemon deploys it again, it
/// was admitted before, and only gets a warning. `elfs` are the files of the objects.
pub fn admit(
    (kernel, trials, anew): (&Kernel, &Trials, bool),
    config: &ProbeConfig,
    occasion: Occasion,
    loaded: &[LoadedDirection],
    (objects, elfs): (&[ProbeObject], &BTreeMap<&'static str, Vec<u8>>),
    warnings: &mut Vec<Finding>,
) -> Result<ProbeCost, Vec<Rejection>> {
    let (mut cost, mut refused) = (ProbeCost::default(), Vec::new());
    for ((direction, config), (loaded, object)) in
        config.directions().zip(loaded.iter().zip(objects))
    {
        let limit = config.max_ns_per_packet;
        let key = TrialKey::new(&loaded.plan, &config.variables, &elfs[direction.name()]);
        let known = if anew { None } else { trials.get(key) };
        let mut of = match known.map_or_else(|| kernel.cost(&loaded.plan, object), Ok) {
            Ok(cost) => cost,
            Err(rejection) => {
                refused.push(rejection);
                continue;
            }
        };
        for _ in 1..TRIALS {
            if let Some(limit) = limit
                && excess(&of, limit).is_some()
                && let Ok(again) = kernel.cost(&loaded.plan, object)
                && again.run.as_ref().map(|run| run.ns_per_packet)
                    < of.run.as_ref().map(|run| run.ns_per_packet)
            {
                of = again;
            }
        }
        if let Some(message) = limit.and_then(|limit| excess(&of, limit)) {
            let finding = Finding::new(
                Stage::Admission,
                format!("{direction}.max_ns_per_packet"),
                message,
            );
            match occasion {
                Occasion::New => refused.push(finding.into()),
                Occasion::Restored => warnings.push(finding),
            }
        }
        trials.keep(key, of.clone());
        cost.directions.insert(direction, of);
    }
    if refused.is_empty() {
        Ok(cost)
    } else {
        Err(refused)
    }
}

/// Refuses a probe that a rule deploys if the probes of all rules would cost more than `limit`
/// nanoseconds per packet. A packet passes only one direction of a probe, so the more expensive
/// direction counts.
pub fn check_rules_budget(
    name: &str,
    cost: &ProbeCost,
    probes: &[Arc<Probe>],
    limit: u64,
) -> Result<(), Rejection> {
    let refused = |message| {
        Finding {
            field: None,
            ..Finding::new(Stage::Admission, "", message)
        }
        .into()
    };
    let of_rules = |probe: &&Arc<Probe>| {
        probe.name != name
            && probe
                .stored
                .pushed_by
                .as_ref()
                .is_some_and(|by| by.starts_with("rule:"))
    };
    let others = probes
        .iter()
        .filter(of_rules)
        .filter_map(|probe| dearer(probe.cost()?))
        .sum::<u64>();
    let Some(own) = dearer(cost) else {
        return Err(refused(format!(
            "the cost of {name} can't be measured in a trial, because the program sends packets or its loops \
             may take long: rules do not deploy such a probe"
        )));
    };
    let present = probes
        .iter()
        .find(|probe| probe.name == name)
        .and_then(|probe| dearer(probe.cost()?));
    // A probe whose cost has not grown, for example because a rule changes it back, needs no
    // further room.
    if present.is_none_or(|present| own > present) && own.saturating_add(others) > limit {
        return Err(refused(format!(
            "{name} takes {own} ns for a packet and the other probes of rules {others} ns by their trials; \
             --max-rule-ns-per-packet allows {limit} ns in all"
        )));
    }
    Ok(())
}

/// Returns the time per packet of the more expensive direction; `None` if a direction was not
/// tried.
fn dearer(cost: &ProbeCost) -> Option<u64> {
    let costs = cost
        .directions
        .values()
        .map(|of| Some(of.run.as_ref()?.ns_per_packet));
    costs.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

/// Returns the message about a program that costs more than `limit` nanoseconds per packet.
fn excess(cost: &DirectionCost, limit: u64) -> Option<String> {
    let Some(run) = &cost.run else {
        return Some(
            "the program was not tried, because it sends packets while it runs (bpf_clone_redirect) or its loops may take \
             long (bpf_loop, bpf_for_each_map_elem, may_goto); leave max_ns_per_packet out, do not use these \
             functions, or give bpf_loop a constant"
                .into(),
        );
    };
    (run.ns_per_packet > limit).then(|| {
        format!(
            "in a trial the program took {} ns for a packet ({}; half of the runs differ by up to {} ns), and \
             max_ns_per_packet is {limit}; do less for each packet, or allow more",
            run.ns_per_packet, run.frame, run.noise_ns
        )
    })
}
