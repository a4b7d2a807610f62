//! Windows, encoded as messages of OTLP.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use reqwest::StatusCode;

use super::point::{OtlpHead, OtlpPoint, add, attribute};
use crate::push::options::SeqPlace;
use crate::push::protocol::PushProtocol;
use crate::receiver::{SeriesName, StreamWindow};
use crate::samples::document::{NamedSample, SampleDocument, SamplePoint};
use crate::samples::window::{WINDOW_SECONDS, WINDOW_SEQ, is_of_window, times};

/// The additional bytes of a point: its share of the metric and of the resource that contain it.
const OVERHEAD: usize = 32;

/// The attribute of the resource with the node, and the prefix of our own attributes.
pub const NODE: &str = "host.name";
pub const OWN: &str = "twinprobe.";
/// The attribute with the number of the window.
const SEQ: &str = "twinprobe.seq";

/// The protocol, with attributes that each resource gets.
pub struct OtlpMetrics {
    attributes: BTreeMap<String, String>,
    seq: SeqPlace,
}

/// `google.rpc.Status`, the body of a refusal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

impl OtlpMetrics {
    pub const fn new(attributes: BTreeMap<String, String>, seq: SeqPlace) -> Self {
        Self { attributes, seq }
    }

    /// Returns the number of a window as an attribute, if the options demand it in this place.
    fn seq(&self, window: &StreamWindow, place: SeqPlace) -> Option<KeyValue> {
        let value = i64::try_from(window.name.seq).unwrap_or(i64::MAX);
        let value = Some(AnyValue {
            value: Some(any_value::Value::IntValue(value)),
        });
        (self.seq == place).then(|| KeyValue {
            key: SEQ.to_owned(),
            value,
            ..KeyValue::default()
        })
    }

    /// Adds the number of the window to points, if the options put it there.
    fn numbered(&self, window: &StreamWindow, mut points: Vec<OtlpPoint>) -> Vec<OtlpPoint> {
        if let Some(seq) = self.seq(window, SeqPlace::Points) {
            points.iter_mut().for_each(|point| point.add(seq.clone()));
        }
        points
    }

    fn resource(&self, series: &SeriesName) -> Resource {
        let SeriesName {
            node,
            instance,
            probe,
        } = series;
        let own = [
            ("service.name", "twinprobe"),
            (NODE, node),
            ("twinprobe.probe", probe),
            ("twinprobe.instance", instance),
        ];
        let more = self
            .attributes
            .iter()
            .map(|(name, value)| (&**name, &**value));
        let mut attributes: BTreeMap<&str, &str> = own.into_iter().collect();
        attributes.extend(more);
        let attributes = attributes
            .into_iter()
            .map(|(name, value)| attribute(name, value))
            .collect();
        Resource {
            attributes,
            ..Resource::default()
        }
    }
}

/// Returns the start and the end of a window, in nanoseconds since 1970.
fn nanoseconds(window: &StreamWindow) -> [u64; 2] {
    times(&window.name).map(|time| u64::try_from(time).unwrap_or_default())
}

/// Returns the metrics with these points; consecutive points of one metric share it.
fn metrics(points: &[OtlpPoint]) -> Vec<Metric> {
    let mut metrics: Vec<(&OtlpHead, Metric)> = Vec::new();
    for OtlpPoint { head, value } in points {
        let place = metrics
            .iter()
            .rposition(|(known, _)| *known == &**head)
            .unwrap_or_else(|| {
                metrics.push((head, head.metric()));
                metrics.len() - 1
            });
        add(&mut metrics[place].1, value);
    }
    metrics.into_iter().map(|(_, metric)| metric).collect()
}

impl PushProtocol for OtlpMetrics {
    type Point = OtlpPoint;

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("content-type", "application/x-protobuf"),
            (
                "user-agent",
                concat!("twinprobe-stream/", env!("CARGO_PKG_VERSION")),
            ),
        ]
    }

    fn about(&self, window: &StreamWindow) -> Vec<OtlpPoint> {
        let [start, end] = nanoseconds(window);
        let probe = vec![("probe", window.name.series.probe.as_str().into())];
        let seconds = (end.saturating_sub(start) as f64 / 1e9).to_string();
        let facts = [
            (WINDOW_SECONDS, "s", seconds),
            (WINDOW_SEQ, "", window.name.seq.to_string()),
        ];
        let points = facts.into_iter().map(|(name, unit, number)| {
            let sample = NamedSample {
                name,
                labels: probe.clone(),
                number: &number,
            };
            let head = Arc::new(OtlpHead::of_window(name, unit));
            head.point(
                &SamplePoint {
                    samples: vec![sample],
                },
                [start, end],
            )
        });
        self.numbered(window, points.collect())
    }

    fn points(&self, window: &StreamWindow, document: &SampleDocument<'_>) -> Vec<OtlpPoint> {
        let times = nanoseconds(window);
        let mut points = Vec::new();
        // The attributes of the resource say where the probe runs.
        let families = document
            .families
            .iter()
            .filter(|family| is_of_window(family) && family.name != "twinprobe_probe");
        for family in families {
            let mut heads: Vec<Arc<OtlpHead>> = Vec::new();
            for point in &family.points {
                let head = OtlpHead::new(family, &point.samples[0], &window.shape);
                let head = match heads.iter().find(|known| ***known == head) {
                    Some(known) => Arc::clone(known),
                    None => {
                        heads.push(Arc::new(head));
                        Arc::clone(&heads[heads.len() - 1])
                    }
                };
                points.push(head.point(point, times));
            }
        }
        self.numbered(window, points)
    }

    fn shown(&self, point: &OtlpPoint) -> Option<String> {
        Some(point.shown())
    }

    fn size(&self, point: &OtlpPoint) -> usize {
        OVERHEAD + point.size()
    }

    fn samples(&self, _: &OtlpPoint) -> u64 {
        1
    }

    fn message(&self, parts: &[(&StreamWindow, &[OtlpPoint])]) -> Vec<u8> {
        let scope = InstrumentationScope {
            name: "twinprobe".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let resource_metrics = parts.iter().map(|(window, points)| ResourceMetrics {
            resource: Some(self.resource(&window.name.series)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    attributes: self.seq(window, SeqPlace::Scope).into_iter().collect(),
                    ..scope.clone()
                }),
                metrics: metrics(points),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        });
        ExportMetricsServiceRequest {
            resource_metrics: resource_metrics.collect(),
        }
        .encode_to_vec()
    }

    fn rejected(&self, answer: &[u8]) -> Option<(u64, String)> {
        // Some receivers answer with JSON or with an empty body. Both answers mean that the
        // receiver has stored everything.
        let answer = ExportMetricsServiceResponse::decode(answer).ok()?;
        let partial = answer.partial_success?;
        let rejected = u64::try_from(partial.rejected_data_points)
            .ok()
            .filter(|rejected| *rejected > 0);
        if rejected.is_none() && !partial.error_message.is_empty() {
            tracing::warn!(
                message = partial.error_message,
                "the receiver answered with a warning"
            );
        }
        Some((rejected?, partial.error_message))
    }

    fn is_final(&self, status: StatusCode) -> bool {
        // By OTLP 1, clients may repeat a message after these statuses, and must not repeat it
        // after others.
        ![429, 502, 503, 504].contains(&status.as_u16())
    }

    fn is_repeat(&self, _: &str) -> bool {
        false
    }

    fn words(&self, answer: &[u8]) -> String {
        let told = RpcStatus::decode(answer).map(|status| status.message);
        told.unwrap_or_else(|_| String::from_utf8_lossy(answer).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};

    use super::*;
    use crate::receiver::ItemName;
    use crate::receivers::otlp::point::PointValue;
    use crate::samples::parse::pieces;

    const DOCUMENT: &str = "# TYPE net_flow_bytes gauge\nnet_flow_bytes{probe=\"p\",direction=\"ingress\",key=\"other\"} 9007199254740993\n\
        # TYPE net_flow_longest_seconds gauge\nnet_flow_longest_seconds{probe=\"p\",direction=\"ingress\",key=\"a\"} 0.5\n\
        # TYPE size_bytes gaugehistogram\nsize_bytes_bucket{direction=\"ingress\",le=\"1.0\"} 1\n\
        size_bytes_bucket{direction=\"ingress\",le=\"3.0\"} 4\nsize_bytes_bucket{direction=\"ingress\",le=\"+Inf\"} 5\n\
        size_bytes_gcount{direction=\"ingress\"} 5\nsize_bytes_gsum{direction=\"ingress\"} 17\n\
        # TYPE twinprobe_export_skipped counter\ntwinprobe_export_skipped_total 0\n# EOF\n";

    fn document() -> SampleDocument<'static> {
        pieces(DOCUMENT.as_bytes(), usize::MAX)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
    }

    fn window() -> StreamWindow {
        let shape = serde_json::json!({ "digest": "d", "metrics": [{
            "direction": "ingress", "name": "flow", "map": "m", "type": "hash", "reading": "window",
            "value": { "type": "unsigned", "bits": 64 },
            "families": [
                { "name": "net_flow_bytes", "unit": "bytes", "merge": "sum", "counts": true },
                { "name": "net_flow_longest_seconds", "unit": "seconds", "merge": "max", "counts": true }],
        }] });
        let series = SeriesName {
            node: "n".into(),
            instance: "4f".into(),
            probe: "p".into(),
        };
        let [start, end] = ["1970-01-01T00:00:01Z", "1970-01-01T00:00:03Z"].map(Into::into);
        StreamWindow {
            name: ItemName {
                series: Arc::new(series),
                seq: 7,
                start,
                end,
            },
            document: DOCUMENT.into(),
            shape: Arc::new(serde_json::from_value(shape).unwrap()),
        }
    }

    #[test]
    fn what_windows_count_are_deltas() {
        let (protocol, window) = (OtlpMetrics::new(BTreeMap::new(), SeqPlace::Scope), window());
        let points = protocol.points(&window, &document());
        let message = protocol.message(&[(&window, &points)]);
        let sizes: usize = points.iter().map(|point| protocol.size(point)).sum();
        assert!(message.len() < sizes + 512, "{} {sizes}", message.len());
        let request = ExportMetricsServiceRequest::decode(&*message).unwrap();
        let scope = &request.resource_metrics[0].scope_metrics[0];
        let seq = protocol.seq(&window, SeqPlace::Scope).unwrap();
        assert_eq!(
            scope.scope.as_ref().unwrap().attributes,
            std::slice::from_ref(&seq)
        );
        let metrics = &scope.metrics;
        let found = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
        let Some(metric::Data::Sum(sum)) = &found("net_flow_bytes").data else {
            panic!("{metrics:?}")
        };
        let point = &sum.data_points[0];
        assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (1, true));
        assert_eq!(
            point.value,
            Some(number_data_point::Value::AsInt(9_007_199_254_740_993))
        );
        assert_eq!(
            (point.start_time_unix_nano, point.time_unix_nano),
            (1_000_000_000, 3_000_000_000)
        );
        assert!(!point.attributes.contains(&seq));
        assert_eq!(found("net_flow_bytes").unit, "By");
        assert!(matches!(
            found("net_flow_longest_seconds").data,
            Some(metric::Data::Gauge(_))
        ));
        let Some(metric::Data::Histogram(sizes)) = &found("size_bytes").data else {
            panic!("{metrics:?}")
        };
        let point = &sizes.data_points[0];
        assert_eq!(
            (&*point.bucket_counts, &*point.explicit_bounds),
            (&[1, 3, 1][..], &[1.0, 3.0][..])
        );
        assert_eq!(
            (point.count, point.sum, sizes.aggregation_temporality),
            (5, Some(17.0), 1)
        );
        assert!(
            metrics
                .iter()
                .all(|metric| metric.name != "twinprobe_export_skipped")
        );
    }

    #[test]
    fn each_point_names_its_window_on_request() {
        let (protocol, window) = (
            OtlpMetrics::new(BTreeMap::new(), SeqPlace::Points),
            window(),
        );
        let seq = protocol.seq(&window, SeqPlace::Points).unwrap();
        assert_eq!(
            seq.value.as_ref().unwrap().value,
            Some(any_value::Value::IntValue(7))
        );
        for point in protocol
            .about(&window)
            .into_iter()
            .chain(protocol.points(&window, &document()))
        {
            let attributes = match &point.value {
                PointValue::Number(point) => &point.attributes,
                PointValue::Histogram(point) => &point.attributes,
            };
            assert!(attributes.contains(&seq), "{attributes:?}");
        }
    }

    #[test]
    fn partial_success_is_read() {
        let protocol = OtlpMetrics::new(BTreeMap::new(), SeqPlace::Scope);
        let partial = |rejected_data_points| {
            let error_message = "late".to_owned();
            let partial_success = Some(
                opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess {
                    rejected_data_points,
                    error_message,
                },
            );
            protocol.rejected(&ExportMetricsServiceResponse { partial_success }.encode_to_vec())
        };
        assert_eq!(partial(3), Some((3, "late".to_owned())));
        assert_eq!(
            (partial(0), protocol.rejected(b""), protocol.rejected(b"{}")),
            (None, None, None)
        );
    }
}
