//! The options of a receiver of OTLP.

use serde::Deserialize;

use super::protocol::{NODE, OWN, OtlpMetrics};
use crate::push::options::PushOptions;
use crate::push::receiver::PushReceiver;
use crate::receiver::Receiver;
use crate::receivers::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};

/// The path at which collectors take metrics.
const PATH: &str = "v1/metrics";
const PORT: u16 = 4318;

/// Options of a receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct OtlpOptions(PushOptions);

impl ReceiverOptions for OtlpOptions {
    const NAME: &'static str = "otlp";
    const SCHEMES: &'static [&'static str] = &["otlp+https", "otlp+http", "otlp"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        PushOptions::from_url(url, PATH, Some(PORT)).map(Self)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.0.check()?;
        // These attributes of the resource identify the probe, so the configuration must not set
        // them.
        let own = |name: &&String| *name == NODE || name.starts_with(OWN);
        if let Some(name) = self.0.labels.keys().find(own) {
            return Err((
                "labels",
                format!("{name} is the stream's own attribute; choose another name"),
            ));
        }
        self.0.check_labels(&['.', '-', '/'])
    }

    fn target(&self) -> String {
        format!("otlp+{}", self.0.address())
    }

    fn identity(&self) -> String {
        self.0.identity()
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let protocol = OtlpMetrics::new(self.0.labels.clone(), self.0.seq.unwrap_or_default());
        Box::new(PushReceiver::new(protocol, self.0, setup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_collector() {
        for (url, target) in [
            ("otlp://localhost", "otlp+http://localhost:4318/v1/metrics"),
            ("otlp+https://[::1]", "otlp+https://[::1]:4318/v1/metrics"),
            (
                "otlp+https://vm.example:443/opentelemetry/v1/metrics",
                "otlp+https://vm.example/opentelemetry/v1/metrics",
            ),
        ] {
            let options = OtlpOptions::from_url(&url.parse().unwrap()).unwrap();
            options.check().unwrap();
            assert_eq!(options.target(), target);
        }
    }

    #[test]
    fn labels_are_named_as_attributes_are() {
        let checked = |name: &str| {
            let value =
                serde_json::json!({ "url": "https://host/v1/metrics", "labels": { name: "x" } });
            serde_json::from_value::<OtlpOptions>(value)
                .unwrap()
                .check()
        };
        for name in [
            "site",
            "k8s.cluster.name",
            "service.name",
            "app.kubernetes.io/name",
        ] {
            checked(name).unwrap();
        }
        for name in ["host.name", "twinprobe.probe", "__name__", "a b"] {
            assert_eq!(checked(name).unwrap_err().0, "labels", "{name}");
        }
    }
}
