//! The families that say how full the maps of metrics are, and what found no room in them.

use std::collections::HashSet;

use super::series::Series;
use super::text::{escaped, integer};
use crate::metric::{Fill, Metric};

/// The metadata of the counter that ends every page.
pub const SKIPPED: &str = "\
# TYPE twinprobe_export_skipped counter
# HELP twinprobe_export_skipped Numbers and texts of metrics that can't be samples.
";

/// A family: its metadata, the name of its samples, and the number of a metric with so many entries.
struct Family {
    metadata: &'static str,
    sample: &'static str,
    number: fn(&Metric, u64) -> Option<u64>,
}

const FAMILIES: [Family; 4] = [
    Family {
        metadata: "# TYPE twinprobe_map_entries gauge\n\
                   # HELP twinprobe_map_entries Entries of the maps that metrics read; of snapshots, when the window ended.\n",
        sample: "twinprobe_map_entries",
        number: |metric, entries| metric.fill(entries).map(|Fill { used, .. }| used),
    },
    Family {
        metadata: "# TYPE twinprobe_map_max_entries gauge\n\
                   # HELP twinprobe_map_max_entries The most entries that the maps that metrics read can have.\n",
        sample: "twinprobe_map_max_entries",
        number: |metric, entries| metric.fill(entries).map(|Fill { max, .. }| u64::from(max)),
    },
    Family {
        metadata: "# TYPE twinprobe_map_failed_inserts counter\n\
                   # HELP twinprobe_map_failed_inserts Insertions that found no room, as counted by twinprobe.h.\n",
        sample: "twinprobe_map_failed_inserts_total",
        number: |metric, _| metric.events.is_none().then_some(metric.completeness.losses?.total),
    },
    Family {
        metadata: "# TYPE twinprobe_map_failed_reserves counter\n\
                   # HELP twinprobe_map_failed_reserves Events that found no room in a ring, as counted by twinprobe.h.\n",
        sample: "twinprobe_map_failed_reserves_total",
        number: |metric, _| metric.events.is_some().then_some(metric.completeness.losses?.total),
    },
];

/// The metadata of all families of this file.
pub fn metadata() -> String {
    FAMILIES.iter().map(|family| family.metadata).collect()
}

/// Writes the families of these series, each with the number of its entries. Metrics that read the same map have one
/// sample together.
pub fn write(series: &[(&Series, usize)], out: &mut Vec<u8>) {
    for Family { metadata, sample, number } in FAMILIES {
        let mut seen = HashSet::new();
        for (series, entries) in series {
            let metric = &series.original;
            let Some(number) = number(metric, *entries as u64) else { continue };
            let mut labels = series.labels.clone().into_bytes();
            labels.extend_from_slice(b",map=\"");
            escaped(&mut labels, &metric.map);
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
