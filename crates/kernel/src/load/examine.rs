//! All work on an object before the kernel sees it. It runs in a separate process, because a bad
//! object may crash it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinprobe_ebpf_common::hook::{Hook, Position, Verdict, XdpMode};
use twinprobe_ebpf_common::metric::OnReplace;

use crate::admit::admission;
use crate::load::bind;
use crate::plan::probe_plan::ProbePlan;
use crate::plan::request::{DirectionRequest, KernelFacts};
use crate::trial::options;
use twinprobe_ebpf_common::request::AttachRequest;
use twinprobe_faults::crash;

/// Parses, plans, relocates and judges an object as a load does. The result is dropped, and the
/// load computes it again.
pub fn examine(elf: &[u8], hook: Hook, entry: Option<&str>) {
    let attach = AttachRequest {
        hook,
        xdp_mode: XdpMode::Auto,
        verdict: Verdict::Observe,
        sample: None,
        priority: 0,
        position: Position::Last,
    };
    let request = DirectionRequest {
        attach,
        entry: entry.map(str::to_owned),
        variables: BTreeMap::new(),
        max_entries: BTreeMap::new(),
        fill: Arc::default(),
        anew: BTreeSet::new(),
        code: String::new(),
        on_replace: OnReplace::Carry,
        metrics: Vec::new(),
        places: BTreeMap::new(),
    };
    let facts = KernelFacts {
        possible_cpus: 1,
        page_size: rustix::param::page_size(),
        btf: aya::features().btf(),
        xdp_frags: true,
        monotonic_zero_ns: 0,
        options: options::RUNNING,
    };
    crash::point("examined");
    let (plan, objects, _) = ProbePlan::build([(request, elf)], &[], facts);
    let (Some(plan), Some(object)) = (plan.directions.first(), objects.first()) else {
        return;
    };
    let Ok(resolved) = bind::resolve(object) else {
        return;
    };
    if admission::references(plan, object, &resolved).is_ok()
        && let Ok(function) = bind::link(resolved.into_owned(), plan)
    {
        let _ = admission::program(plan, object, &function);
    }
}
