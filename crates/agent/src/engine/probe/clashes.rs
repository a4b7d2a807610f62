//! The refusal of metrics that can't be shown together in OpenMetrics: two metrics would be one
//! family, or a metric would have a name of the daemon's own metrics.

use twinprobe_config::ProbeConfig;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_exporter::{Collision, collisions};

use crate::engine::reading::metric::MetricState;

/// The prefixes of the daemon's own families, including those of later versions.
const OWN: [&str; 2] = ["twinprobe_", "process_"];

/// Returns the mistakes in the names of a probe's metrics.
pub fn clashes(config: &ProbeConfig, metrics: &[MetricState]) -> Vec<Finding> {
    let shown: Vec<&MetricState> = metrics.iter().filter(|metric| metric.is_shown()).collect();
    let described: Vec<_> = shown.iter().map(|state| &state.metric).collect();
    let finding = |Collision { name, of }: Collision| {
        let [(one, one_field), (other, other_field)] = of;
        let (one, state) = (number(shown[one], &one_field), shown[other]);
        let other = number(state, &other_field);
        let message = format!(
            "in OpenMetrics {other} and {one} need the same name, {name}; rename one of the metrics, or the field"
        );
        state.request.finding("name", message)
    };
    let own = shown.iter().filter_map(|state| own(state));
    own.chain(
        collisions(&config.labels, &described)
            .into_iter()
            .map(finding),
    )
    .collect()
}

/// Returns the mistake of a metric whose name collides with the daemon's own metrics.
fn own(state: &MetricState) -> Option<Finding> {
    let subsystem = state
        .metric
        .series
        .subsystem
        .as_ref()
        .map(|name| format!("{name}_"))
        .unwrap_or_default();
    let family = format!("{subsystem}{}", state.request.name);
    let start = OWN.into_iter().find(|start| family.starts_with(start))?;
    let message = format!(
        "in OpenMetrics it is {family}, and names that begin with {start} are those of the daemon's own metrics; choose another name"
    );
    Some(state.request.finding("name", message))
}

/// Returns the words for a metric, or for a field of its value, and the place of the metric in the
/// configuration.
fn number(state: &MetricState, field: &str) -> String {
    let metric = format!("{} ({})", state.request.name, state.request.field);
    if field.is_empty() {
        metric
    } else {
        format!("the field {field} of {metric}")
    }
}
