//! The options of a receiver of remote write.

use serde::Deserialize;

use super::protocol::RemoteWrite;
use crate::push::options::PushOptions;
use crate::push::receiver::PushReceiver;
use crate::receiver::Receiver;
use crate::receivers::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};

/// The path at which Prometheus takes samples.
const PATH: &str = "api/v1/write";

/// Options of a receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct PrometheusOptions(PushOptions);

impl ReceiverOptions for PrometheusOptions {
    const NAME: &'static str = "prometheus";
    const SCHEMES: &'static [&'static str] = &["prometheus+https", "prometheus+http"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        PushOptions::from_url(url, PATH, None).map(Self)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.0.check()?;
        if self.0.seq.is_some() {
            return Err((
                "seq",
                "samples have no attributes; only `otlp` has this field".to_owned(),
            ));
        }
        self.0.check_labels(&[])
    }

    fn target(&self) -> String {
        format!("prometheus+{}", self.0.address())
    }

    fn identity(&self) -> String {
        self.0.identity()
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let protocol = RemoteWrite::new(self.0.labels.clone());
        Box::new(PushReceiver::new(protocol, self.0, setup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server() {
        for (url, target) in [
            (
                "prometheus+https://mimir.example",
                "prometheus+https://mimir.example/api/v1/write",
            ),
            (
                "prometheus+http://[::1]:9090",
                "prometheus+http://[::1]:9090/api/v1/write",
            ),
            (
                "prometheus+https://m.example:1/api/v1/push",
                "prometheus+https://m.example:1/api/v1/push",
            ),
        ] {
            let options = PrometheusOptions::from_url(&url.parse().unwrap()).unwrap();
            options.check().unwrap();
            assert_eq!(options.target(), target);
        }
        let wrong = |url: &str| PrometheusOptions::from_url(&url.parse().unwrap()).unwrap_err();
        assert!(wrong("prometheus+https:///path").contains("HOST:PORT"));
        assert!(wrong("prometheus+https://a,b/").contains("one host"));
        assert!(wrong("prometheus+https://a:port/").contains("can't be a host with a port"));
    }

    #[test]
    fn mistakes_name_their_field() {
        for (more, field) in [
            (serde_json::json!({ "url": "ftp://host" }), "url"),
            (serde_json::json!({ "url": "https://user:x@host" }), "url"),
            (
                serde_json::json!({ "url": "http://host", "tokenFile": "/t" }),
                "url",
            ),
            (
                serde_json::json!({ "url": "http://localhost", "ca": "/ca" }),
                "ca",
            ),
            (serde_json::json!({ "key": "/key" }), "key"),
            (serde_json::json!({ "user": "me" }), "user"),
            (
                serde_json::json!({ "user": "me", "passwordFile": "/p", "tokenFile": "/t" }),
                "tokenFile",
            ),
            (
                serde_json::json!({ "headers": { "Authorization": "Bearer x" } }),
                "headers",
            ),
            (serde_json::json!({ "headers": { "a b": "x" } }), "headers"),
            (
                serde_json::json!({ "labels": { "__name__": "x" } }),
                "labels",
            ),
            (
                serde_json::json!({ "labels": { "k8s.cluster": "x" } }),
                "labels",
            ),
            (serde_json::json!({ "seq": "points" }), "seq"),
            (
                serde_json::json!({ "url": "http://host", "headersFile": "/h" }),
                "url",
            ),
            (
                serde_json::json!({ "url": "http://host", "queryFile": "/q" }),
                "url",
            ),
            (serde_json::json!({ "maxBytes": 1 }), "maxBytes"),
        ] {
            let mut value = serde_json::json!({ "url": "https://host/write" });
            for (name, part) in more.as_object().unwrap() {
                value[name] = part.clone();
            }
            let options: PrometheusOptions = serde_json::from_value(value).unwrap();
            assert_eq!(options.check().unwrap_err().0, field, "{more}");
        }
    }
}
