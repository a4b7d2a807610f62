//! Which samples make a family, and what a family may be called.
//!
//! Several probes, or both directions of one, can have metrics of one name: they share a family, told apart by
//! the labels `probe` and `direction`. Of a counter and of a histogram the specification reserves further
//! names; where another family has one of these, both are written as `unknown`, which reserves none.

use std::collections::{HashMap, HashSet};

use twinprobe_ebpf_common::Temporality;

use super::series::Series;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    Histogram,
    GaugeHistogram,
    Unknown,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Unknown => "unknown",
        }
    }

    /// The endings of all names that a family of this kind has for itself.
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

#[derive(Debug)]
pub struct Family {
    /// That of its samples, which for a counter ends in [`TOTAL`].
    pub name: String,
    pub kind: Kind,
    /// Series and value; no two have the same probe and direction.
    pub members: Vec<(usize, usize)>,
}

pub const TOTAL: &str = "_total";

impl Family {
    /// The name in the metadata.
    pub fn base(&self) -> &str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix(TOTAL).unwrap_or(&self.name),
            _ => &self.name,
        }
    }

    fn claims(&self) -> impl Iterator<Item = String> {
        claims(self.base(), self.kind.name())
    }
}

fn claims(base: &str, kind: &str) -> impl Iterator<Item = String> {
    Kind::suffixes(kind).iter().map(move |suffix| format!("{base}{suffix}"))
}

/// What the name and the reading say about the samples of one value.
fn kind(series: &Series, value: usize) -> Kind {
    let value = &series.samples.values[value];
    let (reading, samples) = (series.metric.reading, &series.samples);
    let counter = value.counts && value.family.len() > TOTAL.len() && value.family.ends_with(TOTAL);
    match reading {
        Temporality::Window if samples.is_histogram => Kind::GaugeHistogram,
        _ if samples.is_histogram => Kind::Histogram,
        Temporality::Window => Kind::Gauge,
        Temporality::Cumulative | Temporality::Live if counter => Kind::Counter,
        Temporality::Cumulative => Kind::Unknown,
        Temporality::Live => Kind::Gauge,
    }
}

/// The families of all series, in the order in which their first samples come, without those that have a
/// reserved name, and the members that belong to none.
pub fn families(all: &[&Series], reserved: &HashSet<String>) -> (Vec<Family>, Vec<(usize, usize)>) {
    let mut families: Vec<Family> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut members = HashSet::new();
    let mut nameless = Vec::new();
    for (at, series) in all.iter().enumerate() {
        for (index, value) in series.samples.values.iter().enumerate() {
            let kind = kind(series, index);
            let name = &*value.family;
            // Members whose names differ only in what is not legal, or a metric called like another's member.
            if !members.insert((name, &*series.labels)) {
                nameless.push((at, index));
                continue;
            }
            if let Some(&family) = by_name.get(name) {
                let family = &mut families[family];
                family.members.push((at, index));
                if family.kind != kind {
                    family.kind = Kind::Unknown;
                }
            } else {
                by_name.insert(name, families.len());
                families.push(Family { name: name.to_owned(), kind, members: vec![(at, index)] });
            }
        }
    }

    let mut owners: HashMap<String, usize> = HashMap::new();
    for claim in families.iter().flat_map(Family::claims).chain(reserved.iter().cloned()) {
        *owners.entry(claim).or_default() += 1;
    }
    // Claims only become fewer, so that once is enough.
    for family in &mut families {
        if family.claims().any(|claim| owners.get(&claim).is_some_and(|count| *count > 1)) {
            family.kind = match family.kind {
                Kind::Gauge => Kind::Gauge,
                _ => Kind::Unknown,
            };
        }
    }
    families.retain(|family| {
        let keep = !reserved.contains(&family.name);
        if !keep {
            nameless.extend(&family.members);
        }
        keep
    });
    (families, nameless)
}

/// All names that families already written have for themselves.
pub fn reserved(text: &str) -> HashSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .flat_map(|(base, kind)| claims(base, kind))
        .collect()
}
