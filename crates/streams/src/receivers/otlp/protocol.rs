//! Windows as messages of OTLP.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use reqwest::StatusCode;

use super::point::{OtlpHead, OtlpPoint, add, attribute};
use crate::push::protocol::PushProtocol;
use crate::receiver::{SeriesName, StreamWindow};
use crate::samples::document::{NamedSample, SampleDocument, SamplePoint};
use crate::samples::window::{WINDOW_SECONDS, WINDOW_SEQ, is_of_window, times};

/// The bytes of a point beside its own: those of the metric and the resource around it, as far as it is not alone there.
const OVERHEAD: usize = 32;

/// The protocol, with attributes that each resource gets.
pub struct OtlpMetrics {
    attributes: BTreeMap<String, String>,
}

/// `google.rpc.Status`, the body of a refusal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

impl OtlpMetrics {
    pub const fn new(attributes: BTreeMap<String, String>) -> Self {
        Self { attributes }
    }

    fn resource(&self, series: &SeriesName) -> Resource {
        let SeriesName { node, instance, probe } = series;
        let own = [
            ("service.name", "twinprobe"),
            ("host.name", node),
            ("twinprobe.probe", probe),
            ("twinprobe.instance", instance),
        ];
        let more = self.attributes.iter().map(|(name, value)| (&**name, &**value));
        let mut attributes: BTreeMap<&str, &str> = own.into_iter().collect();
        attributes.extend(more);
        let attributes = attributes.into_iter().map(|(name, value)| attribute(name, value)).collect();
        Resource { attributes, ..Resource::default() }
    }
}

/// Returns the metrics of points that follow each other.
fn metrics(points: &[OtlpPoint]) -> Vec<Metric> {
    let mut metrics: Vec<(&OtlpHead, Metric)> = Vec::new();
    for OtlpPoint { head, value } in points {
        let place = metrics.iter().rposition(|(known, _)| *known == &**head).unwrap_or_else(|| {
            metrics.push((head, head.metric()));
            metrics.len() - 1
        });
        add(&mut metrics[place].1, value);
    }
    metrics.into_iter().map(|(_, metric)| metric).collect()
}

impl PushProtocol for OtlpMetrics {
    const HEADERS: &'static [(&'static str, &'static str)] = &[
        ("content-type", "application/x-protobuf"),
        ("user-agent", concat!("twinprobe-stream/", env!("CARGO_PKG_VERSION"))),
    ];

    type Point = OtlpPoint;

    fn points(&self, window: &StreamWindow, document: &SampleDocument<'_>) -> Vec<OtlpPoint> {
        let times = times(&window.name);
        let [start, end] = times.map(|time| u64::try_from(time).unwrap_or_default());
        let mut points = Vec::new();
        let probe = vec![("probe", window.name.series.probe.as_str().into())];
        let seconds = (end.saturating_sub(start) as f64 / 1e9).to_string();
        for (name, unit, number) in
            [(WINDOW_SECONDS, "s", seconds), (WINDOW_SEQ, "", window.name.seq.to_string())]
        {
            let sample = NamedSample { name, labels: probe.clone(), number: &number };
            let head = Arc::new(OtlpHead::of_window(name, unit));
            points.push(head.point(&SamplePoint { samples: vec![sample] }, [start, end]));
        }
        // The resource says where the probe runs.
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
                points.push(head.point(point, [start, end]));
            }
        }
        points
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
                scope: Some(scope.clone()),
                metrics: metrics(points),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        });
        ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }.encode_to_vec()
    }

    fn rejected(&self, answer: &[u8]) -> Option<(u64, String)> {
        // Some receivers answer with JSON or nothing; what they say then is that they have taken all.
        let answer = ExportMetricsServiceResponse::decode(answer).ok()?;
        let partial = answer.partial_success?;
        let rejected = u64::try_from(partial.rejected_data_points).ok().filter(|rejected| *rejected > 0);
        if rejected.is_none() && !partial.error_message.is_empty() {
            tracing::warn!(message = partial.error_message, "the receiver has a remark");
        }
        Some((rejected?, partial.error_message))
    }

    fn is_final(&self, status: StatusCode) -> bool {
        // OTLP 1: these may be sent again, all others must not.
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
