//! The families of samples, and the names that a family may have.
//!
//! Several probes, or both directions of one, can have metrics of the same name: the metrics share
//! a family and differ by the labels `probe` and `direction`. The specification reserves further
//! names for a counter and for a histogram. If another family has one of these names, both families
//! are `unknown`, which reserves none.

use std::collections::{HashMap, HashSet};

use twinprobe_ebpf_common::{MergeRule, Temporality};

use super::sums::sums;
use crate::encode::openmetrics::samples::FamilySamples;
use crate::encode::openmetrics::series::MetricSeries;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    Gauge,
    Counter,
    Histogram,
    GaugeHistogram,
    Unknown,
}

impl FamilyKind {
    /// The name in the metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Unknown => "unknown",
        }
    }

    /// The endings of all names that the specification reserves for a family of this type.
    fn suffixes(name: &str) -> &'static [&'static str] {
        match name {
            "counter" => &["", "_total", "_created"],
            "histogram" => &["", "_bucket", "_count", "_sum", "_created"],
            "gaugehistogram" => &["", "_bucket", "_gcount", "_gsum"],
            "summary" => &["", "_count", "_sum", "_created"],
            "info" => &["", "_info"],
            _ => &[""],
        }
    }

    pub const fn is_histogram(self) -> bool {
        matches!(self, Self::Histogram | Self::GaugeHistogram)
    }
}

/// A family of samples, which have one name.
#[derive(Debug)]
pub struct Family {
    /// The name of the family's samples; for a counter it ends in [`TOTAL`].
    pub name: String,
    pub kind: FamilyKind,
    /// The members: the place of a series, and the place of a value in that series. No two members
    /// have the same probe and direction.
    pub members: Vec<(usize, usize)>,
}

/// The ending of the names of a counter's samples.
pub const TOTAL: &str = "_total";

impl Family {
    /// The name in the metadata.
    pub fn base(&self) -> &str {
        match self.kind {
            FamilyKind::Counter => self.name.strip_suffix(TOTAL).unwrap_or(&self.name),
            _ => &self.name,
        }
    }

    /// Returns the names that no other family may have.
    pub fn claims(&self) -> impl Iterator<Item = String> {
        claims(self.base(), self.kind.name())
    }
}

fn claims(base: &str, kind: &str) -> impl Iterator<Item = String> {
    FamilyKind::suffixes(kind)
        .iter()
        .map(move |suffix| format!("{base}{suffix}"))
}

/// Returns the type of the samples of one value. A sum of numbers that are never negative is a
/// counter. For live numbers, only the name says whether they are counts.
pub fn kind(series: &MetricSeries, value: &FamilySamples) -> FamilyKind {
    let (temporality, samples) = (series.metric.temporality, &series.samples);
    let counter = value.counts && is_total(&value.family);
    match (temporality, value.merge) {
        (Temporality::Window, _) if samples.is_histogram => FamilyKind::GaugeHistogram,
        _ if samples.is_histogram => FamilyKind::Histogram,
        (Temporality::Cumulative, Some(MergeRule::Sum)) if value.counts => FamilyKind::Counter,
        (Temporality::Cumulative, None) | (Temporality::Live, _) if counter => FamilyKind::Counter,
        // An earlier version of the daemon has stored the window, without the rule.
        (Temporality::Cumulative, None) => FamilyKind::Unknown,
        (Temporality::Window | Temporality::Cumulative | Temporality::Live, _) => FamilyKind::Gauge,
    }
}

fn is_total(name: &str) -> bool {
    name.len() > TOTAL.len() && name.ends_with(TOTAL)
}

/// Returns the name of the samples of this type. The name of a counter's samples ends in [`TOTAL`].
pub fn sample_name(kind: FamilyKind, value: &FamilySamples) -> String {
    let ending = if kind == FamilyKind::Counter && !is_total(&value.family) {
        TOTAL
    } else {
        ""
    };
    format!("{}{ending}", value.family)
}

/// Returns the families of all series except [`sums`], in the order of their first samples. Also
/// returns the members without a family: their name is in `reserved`, or the family already has a
/// member of their probe and direction.
pub fn families(
    all: &[&MetricSeries],
    reserved: &HashSet<String>,
) -> (Vec<Family>, Vec<(usize, usize)>) {
    let mut families: Vec<Family> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut members = HashSet::new();
    let mut nameless = Vec::new();
    let sums: HashSet<usize> = sums(all).into_values().collect();
    for (at, series) in all.iter().enumerate().filter(|(at, _)| !sums.contains(at)) {
        for (index, value) in series.samples.values.iter().enumerate() {
            let kind = kind(series, value);
            let name = sample_name(kind, value);
            // Two values can need the same name: members whose names differ in illegal characters
            // only, or a metric with the name that another metric and its member make together.
            if !members.insert((name.clone(), &*series.labels)) {
                nameless.push((at, index));
                continue;
            }
            if let Some(&family) = by_name.get(&name) {
                let family = &mut families[family];
                family.members.push((at, index));
                if family.kind != kind {
                    family.kind = FamilyKind::Unknown;
                }
            } else {
                by_name.insert(name.clone(), families.len());
                families.push(Family {
                    name,
                    kind,
                    members: vec![(at, index)],
                });
            }
        }
    }

    let mut owners: HashMap<String, usize> = HashMap::new();
    for claim in families
        .iter()
        .flat_map(Family::claims)
        .chain(reserved.iter().cloned())
    {
        *owners.entry(claim).or_default() += 1;
    }
    // A family that becomes `unknown` claims fewer names, so that one pass is enough.
    for family in &mut families {
        let shares = family
            .claims()
            .any(|claim| owners.get(&claim).is_some_and(|count| *count > 1));
        if shares && family.kind != FamilyKind::Gauge {
            family.kind = FamilyKind::Unknown;
        }
    }
    for family in families.extract_if(.., |family| reserved.contains(&family.name)) {
        nameless.extend(family.members);
    }
    (families, nameless)
}

/// Returns all names that the families in `text`, a part of a page, reserve.
pub fn reserved(text: &str) -> HashSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .flat_map(|(base, kind)| claims(base, kind))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use twinprobe_ebpf_common::{Layout, MapKind, TableLayout};

    use super::*;
    use crate::metric::Metric;

    fn series(probe: &str, name: &str, temporality: Temporality) -> MetricSeries {
        let (key, value) = (Layout::unsigned(4), Layout::unsigned(1));
        let layout = TableLayout {
            kind: MapKind::Hash,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let metric = Metric::example(name, layout).with(|head| head.temporality = temporality);
        MetricSeries::new(
            probe,
            &BTreeMap::new(),
            &[],
            &Arc::new(metric),
            Arc::default(),
        )
    }

    fn kinds(all: &[MetricSeries], own: &str) -> (Vec<(String, FamilyKind)>, usize) {
        let all: Vec<&MetricSeries> = all.iter().collect();
        let (families, nameless) = families(&all, &reserved(own));
        (
            families
                .into_iter()
                .map(|family| (family.name, family.kind))
                .collect(),
            nameless.len(),
        )
    }

    #[test]
    fn the_name_and_what_it_counts_from_make_the_type() {
        use Temporality::{Cumulative, Live, Window};
        for (name, temporality, kind) in [
            ("a_total", Window, FamilyKind::Gauge),
            ("a_total", Cumulative, FamilyKind::Counter),
            ("a_total", Live, FamilyKind::Counter),
            ("_total", Live, FamilyKind::Gauge),
            ("a", Cumulative, FamilyKind::Unknown),
            ("a", Live, FamilyKind::Gauge),
        ] {
            let (families, nameless) = kinds(&[series("p", name, temporality)], "");
            assert_eq!((families, nameless), (vec![(name.to_owned(), kind)], 0));
        }
    }

    #[test]
    fn a_name_is_taken_once() {
        let live = |probe, name| series(probe, name, Temporality::Live);
        let (families, nameless) = kinds(&[live("p", "a"), live("q", "a"), live("p", "a")], "");
        assert_eq!(
            (families, nameless),
            (vec![("a".into(), FamilyKind::Gauge)], 1),
            "of one probe, once"
        );
        let window = series("q", "a_total", Temporality::Window);
        let (families, _) = kinds(&[live("p", "a_total"), window], "");
        assert_eq!(
            families,
            [("a_total".into(), FamilyKind::Unknown)],
            "their types differ"
        );
        let (families, _) = kinds(&[live("p", "a_total"), live("p", "a")], "");
        let expected = [
            ("a_total".into(), FamilyKind::Unknown),
            ("a".into(), FamilyKind::Gauge),
        ];
        assert_eq!(
            families, expected,
            "a counter a_total would reserve the name a"
        );
        let (families, nameless) = kinds(&[live("p", "up")], "# TYPE up gauge\nup 1\n");
        assert_eq!((families, nameless), (vec![], 1), "the page has it already");
    }
}
