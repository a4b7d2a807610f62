//! Metrics of one probe that exclude each other in OpenMetrics: two of their numbers would be one
//! family, or one would have a name that the other family reserves. A PUT looks for them, because
//! each metric would cost the other its type.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::family::{Family, FamilyKind, kind, sample_name};
use super::sums::sums;
use crate::encode::openmetrics::samples::FamilySamples;
use crate::encode::openmetrics::series::MetricSeries;
use crate::metric::Metric;

/// Two numbers that need the same name.
#[derive(Debug, PartialEq, Eq)]
pub struct Collision {
    /// The name that both numbers need.
    pub name: String,
    /// The places of the two metrics in the given list, and the fields of their values (empty for
    /// values without fields). The later metric comes last.
    pub of: [(usize, String); 2],
}

/// A number of a metric, and its family.
struct Owner<'a> {
    at: usize,
    series: &'a MetricSeries,
    value: &'a FamilySamples,
    family: Family,
}

/// Returns the first collision of each pair of metrics of a probe with these labels.
pub fn collisions(labels: &BTreeMap<String, String>, metrics: &[&Arc<Metric>]) -> Vec<Collision> {
    let series: Vec<MetricSeries> = metrics
        .iter()
        .map(|metric| MetricSeries::new("", labels, &[], metric, Arc::default()))
        .collect();
    let sums: HashSet<usize> = sums(&series.iter().collect::<Vec<_>>())
        .into_values()
        .collect();
    let mut owners: Vec<Owner<'_>> = Vec::new();
    let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
    let mut found: Vec<Collision> = Vec::new();
    for (at, series) in series
        .iter()
        .enumerate()
        .filter(|(at, _)| !sums.contains(at))
    {
        for value in &series.samples.values {
            let kind = kind(series, value);
            let family = Family {
                name: sample_name(kind, value),
                kind,
                members: Vec::new(),
            };
            let owner = Owner {
                at,
                series,
                value,
                family,
            };
            for name in owner.family.claims() {
                let others = by_name.entry(name).or_default();
                let collides = others
                    .iter()
                    .map(|&other| &owners[other])
                    .find(|other| !share(other, &owner));
                if let Some(other) = collides
                    && !found
                        .iter()
                        .any(|known| [known.of[0].0, known.of[1].0] == [other.at, at])
                {
                    let of = [other, &owner].map(|owner| (owner.at, owner.value.field.clone()));
                    found.push(Collision {
                        name: owner.family.base().to_owned(),
                        of,
                    });
                }
                others.push(owners.len());
            }
            owners.push(owner);
        }
    }
    found
}

/// Tells whether two numbers may be one family: the same field of metrics of the same name, in both
/// directions. A histogram shares a family only with another histogram, because it has no samples
/// but buckets.
fn share(one: &Owner<'_>, other: &Owner<'_>) -> bool {
    let is_same = one.family.name == other.family.name
        && one.series.original.name == other.series.original.name
        && one.value.field == other.value.field;
    let histograms = [one, other]
        .map(|owner| owner.family.kind)
        .map(FamilyKind::is_histogram);
    let alike = one.family.kind == other.family.kind || histograms == [false; 2];
    is_same && alike && one.series.labels != other.series.labels
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Direction, Layout, MapKind, Render, TableLayout, Temporality};

    use super::*;
    use crate::encode::openmetrics::samples::tests::record;

    fn metric(name: &str, value: Layout, temporality: Temporality) -> Arc<Metric> {
        let key = Layout::unsigned(4);
        let layout = TableLayout {
            kind: MapKind::Array,
            key,
            value,
            slots: 1,
            inner: None,
        };
        Arc::new(Metric::example(name, layout).with(|head| head.temporality = temporality))
    }

    fn plain(name: &str) -> Arc<Metric> {
        metric(name, Layout::unsigned(8), Temporality::Live)
    }

    fn histogram(name: &str) -> Arc<Metric> {
        let slots = Layout {
            render: Some(Render::Histogram),
            ..Layout::unsigned(8)
        };
        metric(name, slots, Temporality::Live)
    }

    fn found(metrics: &[(Direction, Arc<Metric>)]) -> Vec<(String, [(usize, String); 2])> {
        let of = |(direction, metric): &(Direction, Arc<Metric>)| {
            Arc::new(Metric::clone(metric).with(|head| head.direction = *direction))
        };
        let metrics: Vec<_> = metrics.iter().map(of).collect();
        collisions(&BTreeMap::new(), &metrics.iter().collect::<Vec<_>>())
            .into_iter()
            .map(|found| (found.name, found.of))
            .collect()
    }

    #[test]
    fn names_that_another_metric_needs_are_found() {
        use Direction::{Egress, Ingress};
        let struct_of =
            |name: &str, fields: &[&str]| metric(name, record(8, fields), Temporality::Live);
        for (one, other, expected) in [
            (
                plain("a_b"),
                struct_of("a", &["c", "b"]),
                Some(("a_b", ["", "b"])),
            ),
            (
                histogram("a"),
                struct_of("a", &["bucket"]),
                Some(("a_bucket", ["", "bucket"])),
            ),
            (
                histogram("a_seconds"),
                plain("a_nanoseconds_total"),
                Some(("a_seconds", ["", ""])),
            ),
            (plain("a_total"), plain("a"), Some(("a", ["", ""]))),
            (
                plain("a_total"),
                plain("a_created"),
                Some(("a_created", ["", ""])),
            ),
            (plain("a"), plain("b"), None),
            (plain("a_total"), plain("a_totals"), None),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(name, [one, other])| {
                    (
                        name.to_owned(),
                        [(0, one.to_owned()), (1, other.to_owned())],
                    )
                })
                .collect();
            for directions in [[Ingress; 2], [Ingress, Egress]] {
                let both = [
                    (directions[0], Arc::clone(&one)),
                    (directions[1], Arc::clone(&other)),
                ];
                assert_eq!(found(&both), expected, "{} and {}", one.name, other.name);
            }
        }
        let twice = struct_of("a", &["b$", "b_"]);
        assert_eq!(
            found(&[(Ingress, twice)]),
            [("a_b_".to_owned(), [(0, "b$".into()), (0, "b_".into())])]
        );
    }

    #[test]
    fn both_directions_may_have_one_metric() {
        use Direction::{Egress, Ingress};
        let window = metric("a_total", Layout::unsigned(8), Temporality::Window);
        for egress in [plain("a_total"), window] {
            assert_eq!(found(&[(Ingress, plain("a_total")), (Egress, egress)]), []);
        }
        assert_eq!(
            found(&[(Ingress, histogram("a")), (Egress, histogram("a"))]),
            []
        );
        assert_eq!(
            found(&[(Ingress, histogram("a")), (Egress, plain("a"))]).len(),
            1
        );
    }
}
