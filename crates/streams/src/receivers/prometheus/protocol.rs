//! Windows, encoded as messages of remote write.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prost::Message as _;
use reqwest::StatusCode;

use super::message::{
    RemotePoint, WriteRequest, WrittenLabel, WrittenMetadata, WrittenSample, WrittenSeries,
};
use super::symbols;
use super::version::RemoteVersion;
use crate::http::access::HttpAnswer;
use crate::push::protocol::PushProtocol;
use crate::receiver::StreamWindow;
use crate::samples::document::{NamedSample, SampleDocument, SampleKind};
use crate::samples::window::{WINDOW_SECONDS, WINDOW_SEQ, is_of_window, times};

/// The bytes of a sample, without the texts of its labels.
const OVERHEAD: usize = 24;
/// The bytes of a label, without its texts.
const LABEL: usize = 6;

const AGENT: (&str, &str) = (
    "user-agent",
    concat!("twinprobe-stream/", env!("CARGO_PKG_VERSION")),
);
/// The headers of messages of version 1.0.
const FIRST: &[(&str, &str)] = &[
    ("content-type", "application/x-protobuf"),
    ("content-encoding", "snappy"),
    ("x-prometheus-remote-write-version", "0.1.0"),
    AGENT,
];
/// The headers of messages of version 2.0.
const SECOND: &[(&str, &str)] = &[
    (
        "content-type",
        "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    ),
    ("content-encoding", "snappy"),
    ("x-prometheus-remote-write-version", "2.0.0"),
    AGENT,
];

/// The protocol, with labels that each series gets.
pub struct RemoteWrite {
    labels: BTreeMap<String, String>,
    version: RemoteVersion,
}

impl RemoteWrite {
    pub fn new(labels: BTreeMap<String, String>) -> Self {
        Self {
            labels,
            version: RemoteVersion::default(),
        }
    }

    /// Returns a sample at the end of its window.
    fn point(
        &self,
        window: &StreamWindow,
        sample: &NamedSample<'_>,
        value: f64,
        family: &Arc<WrittenMetadata>,
    ) -> RemotePoint {
        let [_, end] = times(&window.name);
        RemotePoint::Sample {
            labels: self.labels(&window.name.series.node, sample),
            sample: WrittenSample {
                value,
                time: end / 1_000_000,
            },
            family: Arc::clone(family),
        }
    }

    /// Returns the labels of a sample, sorted by name. A label of the document is renamed if one of
    /// our labels has its name.
    fn labels(&self, node: &str, sample: &NamedSample<'_>) -> Vec<WrittenLabel> {
        let own = |name: &str| name == "node" || self.labels.contains_key(name);
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in &sample.labels {
            let is_same = *name == "node" && value == node;
            let name = if own(name) && !is_same {
                format!("exported_{name}")
            } else {
                (*name).to_owned()
            };
            labels.insert(name, value.to_string());
        }
        labels.insert("node".to_owned(), node.to_owned());
        labels.extend(self.labels.clone());
        labels.insert("__name__".to_owned(), sample.name.to_owned());
        // Prometheus treats a label with an empty value as a missing label.
        labels.retain(|_, value| !value.is_empty());
        labels
            .into_iter()
            .map(|(name, value)| WrittenLabel { name, value })
            .collect()
    }
}

/// Returns the number of a type in `MetricType`.
const fn number(kind: SampleKind) -> i32 {
    match kind {
        SampleKind::Unknown => 0,
        SampleKind::Counter => 1,
        SampleKind::Gauge => 2,
        SampleKind::Histogram => 3,
        SampleKind::GaugeHistogram => 4,
        SampleKind::Info => 6,
    }
}

fn metadata(kind: SampleKind, family: &str, help: &str, unit: &str) -> WrittenMetadata {
    WrittenMetadata {
        kind: number(kind),
        family: family.to_owned(),
        help: help.to_owned(),
        unit: unit.to_owned(),
    }
}

/// Returns the message of version 1.0 with these points.
fn first<'a>(points: impl Iterator<Item = &'a RemotePoint>) -> WriteRequest {
    let (mut request, mut places) = (
        WriteRequest::default(),
        HashMap::<&[WrittenLabel], usize>::new(),
    );
    for point in points {
        match point {
            RemotePoint::Sample { labels, sample, .. } => {
                let place = *places.entry(labels).or_insert_with(|| {
                    request.series.push(WrittenSeries {
                        labels: labels.clone(),
                        samples: Vec::new(),
                    });
                    request.series.len() - 1
                });
                request.series[place].samples.push(*sample);
            }
            RemotePoint::Family(metadata) if request.metadata.contains(metadata) => {}
            RemotePoint::Family(metadata) => {
                request.metadata.push(WrittenMetadata::clone(metadata));
            }
        }
    }
    request
}

impl PushProtocol for RemoteWrite {
    type Point = RemotePoint;

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        if self.version.is_second() {
            SECOND
        } else {
            FIRST
        }
    }

    fn has_turned(&self, answer: &HttpAnswer) -> bool {
        self.version.has_turned(answer)
    }

    fn about(&self, window: &StreamWindow) -> Vec<RemotePoint> {
        let name = &window.name;
        let [start, end] = times(name);
        let labels = vec![("probe", name.series.probe.as_str().into())];
        let about = |(family, unit, number): (&'static str, &str, f64)| {
            let sample = NamedSample {
                name: family,
                labels: labels.clone(),
                number: "",
            };
            let metadata = Arc::new(metadata(SampleKind::Gauge, family, "", unit));
            self.point(window, &sample, number, &metadata)
        };
        let facts = [
            (WINDOW_SECONDS, "seconds", (end - start) as f64 / 1e9),
            (WINDOW_SEQ, "", name.seq as f64),
        ];
        facts.into_iter().map(about).collect()
    }

    fn points(&self, window: &StreamWindow, document: &SampleDocument<'_>) -> Vec<RemotePoint> {
        let (mut points, mut families) = (Vec::new(), Vec::new());
        for family in document
            .families
            .iter()
            .filter(|family| is_of_window(family))
        {
            let metadata = Arc::new(metadata(
                family.kind,
                family.name,
                &family.help,
                family.unit,
            ));
            for sample in family.points.iter().flat_map(|point| &point.samples) {
                points.push(self.point(window, sample, sample.float(), &metadata));
            }
            families.push(metadata);
        }
        points.extend(families.into_iter().map(RemotePoint::Family));
        points
    }

    fn shown(&self, point: &RemotePoint) -> Option<String> {
        let RemotePoint::Sample { labels, sample, .. } = point else {
            return None;
        };
        let named = |wanted: bool| {
            labels
                .iter()
                .filter(move |label| (label.name == "__name__") == wanted)
        };
        let name: String = named(true).map(|label| label.value.as_str()).collect();
        let labels: Vec<String> = named(false)
            .map(|label| format!("{}={:?}", label.name, label.value))
            .collect();
        Some(format!("{name}{{{}}} {}", labels.join(","), sample.value))
    }

    fn size(&self, point: &RemotePoint) -> usize {
        match point {
            RemotePoint::Sample { labels, .. } => {
                OVERHEAD
                    + labels
                        .iter()
                        .map(|label| LABEL + label.name.len() + label.value.len())
                        .sum::<usize>()
            }
            RemotePoint::Family(metadata) => metadata.encoded_len() + LABEL,
        }
    }

    fn samples(&self, point: &RemotePoint) -> u64 {
        matches!(point, RemotePoint::Sample { .. }).into()
    }

    fn message(&self, parts: &[(&StreamWindow, &[RemotePoint])]) -> Vec<u8> {
        let points = parts.iter().flat_map(|(_, points)| *points);
        let bytes = if self.version.is_second() {
            symbols::request(points).encode_to_vec()
        } else {
            first(points).encode_to_vec()
        };
        // Compression fails only for a message of more than 4 GiB.
        snap::raw::Encoder::new()
            .compress_vec(&bytes)
            .unwrap_or_default()
    }

    fn rejected(&self, _: &[u8]) -> Option<(u64, String)> {
        None
    }

    fn is_final(&self, status: StatusCode) -> bool {
        // Versions 1.0 and 2.0: the stream must not repeat messages after answers other than 429
        // and 5xx.
        status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS
    }

    fn is_repeat(&self, refusal: &str) -> bool {
        refusal.contains("out of order sample")
    }

    fn words(&self, answer: &[u8]) -> String {
        String::from_utf8_lossy(answer).into_owned()
    }
}
