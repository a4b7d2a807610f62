//! Tags of the source that have no effect: unknown tags, and tags of declarations that they do not
//! fit.

use std::collections::BTreeSet;

use twinprobe_ebpf_common::Render;
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_exporter::misfits;
use twinprobe_kernel::{DirectionPlan, ProbeObject};

/// The most tags of one direction about which the daemon warns.
const MOST: usize = 20;

/// Returns the warnings about the tags of a direction whose source, if there is one, is `source`.
pub fn warnings(plan: &DirectionPlan, object: &ProbeObject, source: Option<&str>) -> Vec<Finding> {
    let field = &plan.code;
    let unknown = object.defined.btf.unknown_tags().map(|(tag, on)| {
        let message = format!(
            "btf_decl_tag(\"{tag}\") on {on} is unknown and changes nothing; known are {}",
            Render::ALL.map(|render| render.tag().0).join(", ")
        );
        let finding = Finding::new(Stage::Load, field, message);
        match source.and_then(|source| line_of(source, tag)) {
            Some(line) => finding.at(line, None),
            None => finding,
        }
    });
    let mut maps = BTreeSet::new();
    let metrics = plan
        .metrics
        .iter()
        .filter(move |metric| maps.insert(&metric.request.map));
    let metrics = metrics.filter_map(|metric| Some((metric, metric.layout()?)));
    let misfit = metrics.flat_map(|(metric, layout)| {
        misfits(layout).into_iter().map(|(path, render)| {
            let (tag, fits) = render.tag();
            let map = &metric.request.map;
            let message = format!(
                "btf_decl_tag(\"{tag}\") does not fit {path} of map {map}, which is shown without it; it is for {fits}"
            );
            Finding::new(Stage::Load, field, message)
        })
    });
    unknown.chain(misfit).take(MOST).collect()
}

/// Returns the line that has the tag in quotation marks.
fn line_of(source: &str, tag: &str) -> Option<u32> {
    let at = source.find(&format!("\"{tag}\""))?;
    u32::try_from(1 + source[..at].matches('\n').count()).ok()
}
