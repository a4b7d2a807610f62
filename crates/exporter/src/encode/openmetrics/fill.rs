//! The families about the fill of metrics' maps, about refused entries, and about values without
//! samples.

use std::collections::HashSet;

use super::info::label;
use super::series::{Count, MetricSeries};
use super::text::integer;
use crate::metric::Metric;
use twinprobe_ebpf_common::Fill;

/// The metadata of the counter that ends every page.
pub const SKIPPED: &str = "\
# TYPE twinprobe_export_skipped counter
# HELP twinprobe_export_skipped Numbers and texts of metrics that can't be samples.
";

/// A family: its metadata, the name of its samples, and the function that returns the number for a
/// metric's counts.
struct FillFamily {
    metadata: &'static str,
    sample: &'static str,
    /// True if each metric has a sample; false if each map has one.
    by_metric: bool,
    number: fn(&Metric, Count) -> Option<u64>,
}

const FAMILIES: [FillFamily; 5] = [
    FillFamily {
        metadata: "# TYPE twinprobe_map_entries gauge\n\
                   # HELP twinprobe_map_entries Entries of the maps that metrics read; for snapshots, at the end of the window.\n",
        sample: "twinprobe_map_entries",
        by_metric: false,
        number: |metric, count| {
            metric
                .fill(count.entries as u64)
                .map(|Fill { used, .. }| used)
        },
    },
    FillFamily {
        metadata: "# TYPE twinprobe_map_max_entries gauge\n\
                   # HELP twinprobe_map_max_entries The most entries of the maps that metrics read.\n",
        sample: "twinprobe_map_max_entries",
        by_metric: false,
        number: |metric, count| {
            metric
                .fill(count.entries as u64)
                .map(|Fill { max, .. }| u64::from(max))
        },
    },
    FillFamily {
        metadata: "# TYPE twinprobe_map_failed_inserts counter\n\
                   # HELP twinprobe_map_failed_inserts Insertions that found no room, as counted by twinprobe.h.\n",
        sample: "twinprobe_map_failed_inserts_total",
        by_metric: false,
        number: |metric, _| {
            metric
                .events
                .is_none()
                .then_some(metric.completeness.losses?.total)
        },
    },
    FillFamily {
        metadata: "# TYPE twinprobe_map_failed_reserves counter\n\
                   # HELP twinprobe_map_failed_reserves Events that found no room in a ring, as counted by twinprobe.h.\n",
        sample: "twinprobe_map_failed_reserves_total",
        by_metric: false,
        number: |metric, _| {
            metric
                .events
                .is_some()
                .then_some(metric.completeness.losses?.total)
        },
    },
    FillFamily {
        metadata: "# TYPE twinprobe_export_other_entries gauge\n\
                   # HELP twinprobe_export_other_entries Entries beyond max_series; the key `other` has their sum.\n",
        sample: "twinprobe_export_other_entries",
        by_metric: true,
        number: |metric, count| metric.series.max_series.map(|_| count.surplus as u64),
    },
];

/// The metadata of all families of this file.
pub fn metadata() -> String {
    FAMILIES.iter().map(|family| family.metadata).collect()
}

/// Writes these families for these series, each with the counts of its rows. Metrics that read the
/// same map share one sample.
pub fn write(series: &[(&MetricSeries, Count)], out: &mut Vec<u8>) {
    for FillFamily {
        metadata,
        sample,
        by_metric,
        number,
    } in FAMILIES
    {
        let mut seen = HashSet::new();
        for (series, count) in series {
            let metric = &series.original;
            let Some(number) = number(metric, *count) else {
                continue;
            };
            let mut labels = series.map_labels.clone().into_bytes();
            let (name, value) = if by_metric {
                ("metric", &metric.name)
            } else {
                ("map", &metric.map)
            };
            labels.pop();
            label(&mut labels, name, value);
            labels.extend_from_slice(b"\"} ");
            if seen.is_empty() {
                out.extend_from_slice(metadata.as_bytes());
            }
            if seen.insert(labels.clone()) {
                out.extend_from_slice(sample.as_bytes());
                out.extend_from_slice(&labels);
                integer(out, number);
                out.push(b'\n');
            }
        }
    }
}
