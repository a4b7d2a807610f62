//! A probe whose directions are loaded, but not attached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinprobe_ebpf_common::ProbeCost;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_kernel::{
    DeclaredAt, DirectionPlan, DirectionRequest, Kernel, KernelFacts, LoadedDirection,
    OwnInterface, ProbeObject, ProbePlan, ReplayClock,
};

use crate::engine::deploy::cause::Occasion;
use crate::engine::probe::running::Running;
use crate::engine::reading::metric::MetricState;
use crate::limits::ledger::Share;
use twinprobe_compiler::declared;
use twinprobe_config::{Code, ProbeConfig, SourceCode};

/// A probe whose programs are compiled, verified and loaded.
#[derive(Debug)]
pub struct LoadedProbe {
    /// The occasion of the load. If the probe is new, every interface that it names must exist.
    pub occasion: Occasion,
    /// The directions, in the order of [`ProbeConfig::directions`].
    pub directions: Vec<LoadedDirection>,
    /// The clock of each direction that sees the packets of a capture.
    pub clocks: Vec<ReplayClock>,
    /// The metrics of all directions that are read. They have counted nothing yet.
    pub metrics: Vec<MetricState>,
    /// The objects that the directions were loaded from, in the same order.
    pub parsed: Vec<ProbeObject>,
    /// The ELF files of the objects, by direction.
    pub objects: BTreeMap<&'static str, Vec<u8>>,
    pub warnings: Vec<Finding>,
    /// The cost that a trial has found.
    pub cost: ProbeCost,
    pub share: Share,
}

/// A probe that was loaded before a client or a rule deploys it. It replaces no other probe.
#[derive(Debug)]
pub struct LoadedAhead {
    pub config: ProbeConfig,
    pub loaded: LoadedProbe,
}

impl LoadedProbe {
    /// Loads the directions again if a direction was loaded for the other twin of `old`, because a
    /// window was closed since the load. Must be called while no window can be closed.
    pub fn follow(&mut self, kernel: &Kernel, old: &Running) -> Result<(), Rejection> {
        if self
            .directions
            .iter()
            .all(|loaded| old.open.attached.is_continued_by(loaded))
        {
            return Ok(());
        }
        let old = old.predecessor();
        let mut again: Vec<LoadedDirection> = Vec::new();
        for (loaded, object) in self.directions.iter().zip(&self.parsed) {
            let first = first_of(&again, &loaded.plan);
            again.push(kernel.load(Arc::clone(&loaded.plan), object, Some(&old), first)?);
        }
        self.directions = again;
        Ok(())
    }
}

/// Returns the first loaded direction that serves the same interfaces, whose maps `plan` may also
/// use.
pub fn first_of<'a>(
    loaded: &'a [LoadedDirection],
    plan: &DirectionPlan,
) -> Option<&'a LoadedDirection> {
    loaded
        .iter()
        .find(|loaded| loaded.plan.own_interface == plan.own_interface)
}

/// Plans the directions of a probe with the objects `elfs`, in the order of
/// [`ProbeConfig::directions`]: once, or once for each interface in the order of the configuration.
/// Returns the plan, its objects and the findings. See [`ProbePlan::build`].
pub fn planned(
    config: &ProbeConfig,
    anew: &BTreeSet<String>,
    elfs: &[&[u8]],
    common: &[String],
    facts: KernelFacts,
) -> (ProbePlan, Vec<ProbeObject>, Vec<Finding>) {
    let build = || {
        ProbePlan::build(
            requests(config, anew).zip(elfs.iter().copied()),
            common,
            facts,
        )
    };
    let (mut plan, mut parsed, findings) = build();
    let all = config
        .places
        .own_interfaces()
        .filter(|_| findings.is_empty());
    for index in 0..all.as_ref().map_or(0, |all| all.len()) {
        let own = all.as_ref().map(|all| OwnInterface {
            all: Arc::clone(all),
            index,
        });
        let Some(own) = own else { break };
        if index == 0 {
            plan = plan.on_interface(&own);
            continue;
        }
        // The first plan also has the warnings of all other plans.
        let (other, objects, _) = build();
        plan.directions.extend(other.on_interface(&own).directions);
        parsed.extend(objects);
    }
    (plan, parsed, findings)
}

/// Returns the places of the names that a source, and the files sent with it, declare. The places
/// in the source come first.
fn places(source: &SourceCode) -> BTreeMap<String, DeclaredAt> {
    let beside = source.files.iter().map(|(name, text)| (Some(name), text));
    let all = beside
        .chain([(None, &source.text)])
        .flat_map(|(file, text)| {
            let at = move |(name, line)| {
                (
                    name,
                    DeclaredAt {
                        file: file.cloned(),
                        line,
                    },
                )
            };
            declared(text).into_iter().map(at)
        });
    all.collect()
}

/// Returns the request for each direction, in the order of [`ProbeConfig::directions`]. `anew`
/// names the maps that must have exactly the entries of `fill`, even if the probe replaces another
/// one.
fn requests(
    config: &ProbeConfig,
    anew: &BTreeSet<String>,
) -> impl Iterator<Item = DirectionRequest> {
    config
        .directions()
        .map(|(name, direction)| DirectionRequest {
            attach: direction.attach,
            entry: direction.entry.clone(),
            variables: direction.variables.clone(),
            max_entries: direction.max_entries.clone(),
            fill: Arc::clone(&config.fill),
            anew: anew.clone(),
            code: format!("{name}.{}", direction.code.field()),
            on_replace: config.on_replace,
            metrics: direction
                .metrics
                .iter()
                .map(|metric| metric.request.clone())
                .collect(),
            places: match &direction.code {
                Code::Source(source) => places(source),
                Code::Object(_) => BTreeMap::new(),
            },
        })
}
