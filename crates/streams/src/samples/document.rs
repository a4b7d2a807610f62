//! A window's document in OpenMetrics.

use std::borrow::Cow;

/// The families of a document, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleDocument<'a> {
    pub families: Vec<SampleFamily<'a>>,
}

/// A family: the samples with one name in the metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleFamily<'a> {
    /// The name in the metadata, without the ending of a counter.
    pub name: &'a str,
    pub kind: SampleKind,
    pub help: Cow<'a, str>,
    /// The base unit; empty if there is none.
    pub unit: &'a str,
    pub points: Vec<SamplePoint<'a>>,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    Info,
    Unknown,
}

/// The samples that have the same labels except `le`: one sample, or the samples of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplePoint<'a> {
    pub samples: Vec<NamedSample<'a>>,
}

/// A line of the document.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSample<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// The number with all digits of the document.
    pub number: &'a str,
}

impl SampleKind {
    pub const fn is_histogram(self) -> bool {
        matches!(self, Self::Histogram | Self::GaugeHistogram)
    }
}

impl SampleFamily<'_> {
    /// The family without its points.
    pub fn head(&self) -> Self {
        Self {
            help: self.help.clone(),
            points: Vec::new(),
            ..*self
        }
    }
}

impl SamplePoint<'_> {
    /// Tells whether the point of a histogram has this sample.
    pub fn has(&self, sample: &NamedSample<'_>) -> bool {
        self.samples[0]
            .labels_of_point()
            .eq(sample.labels_of_point())
    }
}

impl<'a> NamedSample<'a> {
    /// The value of a label; `None` if there is no such label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(label, _)| *label == name)
            .map(|(_, value)| &**value)
    }

    /// The nearest floating-point number. The parser has checked the number.
    pub fn float(&self) -> f64 {
        self.number.parse().unwrap_or(f64::NAN)
    }

    /// The labels except the bound of a bucket.
    pub fn labels_of_point(&self) -> impl Iterator<Item = &(&'a str, Cow<'a, str>)> {
        self.labels.iter().filter(|(name, _)| *name != "le")
    }
}
