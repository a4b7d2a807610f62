//! The planning of a probe from its objects and its configuration. A refusal lists every mistake at
//! once.

use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Stage};

use crate::plan::draft::{DirectionDraft, Planned};
use crate::plan::metric::{fill, initial, sizes};
use crate::plan::object::{Definitions, ProbeObject};
use crate::plan::probe_plan::ProbePlan;
use crate::plan::request::{DirectionRequest, KernelFacts};
use crate::plan::together;
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_ebpf_common::request::MetricRequest;

impl ProbePlan {
    /// Plans a probe. `wanted` has the request and the object of each direction; `common` are the
    /// names of the maps that both directions use. Returns the plan of the directions without
    /// mistakes, their objects in the same order, and the findings.
    pub fn build<'a>(
        wanted: impl IntoIterator<Item = (DirectionRequest, &'a [u8])>,
        common: &[String],
        facts: KernelFacts,
    ) -> (Self, Vec<ProbeObject>, Vec<Finding>) {
        let (mut requests, mut parsed, mut findings) = (Vec::new(), Vec::new(), Vec::new());
        for (request, elf) in wanted {
            match ProbeObject::parse(elf, request.attach.hook, request.entry.as_deref(), facts) {
                Ok(mut object) => {
                    let mut refused = initial::set(&mut object.defined, &request);
                    refused.extend(sizes::set(&mut object.defined, &request, facts));
                    if !refused.is_empty() {
                        findings.extend(refused);
                        continue;
                    }
                    requests.push(request);
                    parsed.push(object);
                }
                Err(error) => findings.push(error.finding(&request.code)),
            }
        }
        let defined: Vec<&Definitions> = parsed.iter().map(|of| &of.defined).collect();
        // The maps of a refused object are unknown.
        let unknown = if findings.is_empty() {
            fill::unknown(&requests, &defined)
        } else {
            Vec::new()
        };
        let planned = directions(
            requests
                .into_iter()
                .zip(parsed.iter().map(|of| &of.defined)),
            common,
            facts,
        );
        findings.extend(unknown);
        let (mut plan, mut objects) = (Self::default(), Vec::new());
        for (planned, object) in planned.into_iter().zip(parsed) {
            match planned {
                Ok((direction, warnings)) => {
                    let warnings = object.defined.warnings.iter().chain(&warnings);
                    plan.warnings.extend(
                        warnings.map(|text| Finding::new(Stage::Load, &direction.code, text)),
                    );
                    plan.directions.push(Arc::new(direction));
                    objects.push(object);
                }
                Err(refused) => {
                    // Both directions may have the same finding about their maps.
                    let new = refused
                        .into_iter()
                        .filter(|finding| !findings.contains(finding));
                    let new: Vec<Finding> = new.collect();
                    findings.extend(new);
                }
            }
        }
        (plan, objects, findings)
    }
}

/// Plans directions, ingress first.
pub fn directions<'a>(
    wanted: impl IntoIterator<Item = (DirectionRequest, &'a Definitions)>,
    common: &[String],
    facts: KernelFacts,
) -> Vec<Planned> {
    let wanted: Vec<(DirectionRequest, &Definitions)> = wanted.into_iter().collect();
    let others = wanted.iter().map(|(of, _)| {
        let others = wanted.iter().filter(|(other, _)| {
            Direction::from(other.attach.hook) != Direction::from(of.attach.hook)
        });
        let metrics = others.flat_map(|(other, _)| &other.metrics);
        metrics
            .filter(|metric| common.contains(&metric.map))
            .cloned()
            .collect()
    });
    let others: Vec<Vec<MetricRequest>> = others.collect();
    let drafts = wanted.into_iter().zip(&others);
    let drafts = drafts
        .map(|((request, defined), others)| DirectionDraft::new(request, others, defined, facts));
    let mut drafts: Vec<DirectionDraft<'_>> = drafts.collect();
    together::plan(&mut drafts, common);
    drafts.into_iter().map(DirectionDraft::finish).collect()
}
