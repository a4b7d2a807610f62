//! The daemons of a Service of Kubernetes. The API server's list of the Service's endpoints names
//! their nodes and addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::credentials::CredentialFiles;
use super::daemon::DaemonAddress;
use super::slices::{EndpointList, EndpointNames, FoundEndpoints};

/// The folder of a pod with the credentials of its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The label of a list of endpoints: the name of its Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";
/// The name of the Service in the chart of twinprobe.
const SERVICE: &str = "twinprobe";
const PATIENCE: Duration = Duration::from_secs(30);
/// The endpoints that the API server returns at once.
const PAGE: &str = "500";

/// The options of `from.kubernetes`. In a pod, the service account of the pod gives the missing
/// values.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct KubernetesOptions {
    /// The namespace of the Service; by default the namespace of the pod.
    pub namespace: Option<String>,
    pub service: Option<String>,
    /// The name of the Service's port for the API.
    pub port: Option<String>,
    /// The name in the daemons' certificates; by default the name of the Service,
    /// `SERVICE.NAMESPACE.svc`.
    pub server_name: Option<String>,
    /// False if the daemons listen without TLS.
    pub tls: Option<bool>,
    /// The URL of the API server.
    pub api_server: Option<String>,
    pub api_ca: Option<PathBuf>,
    /// The file with the token for the API server. It is read again for each request. With
    /// `api_cert` there is none by default.
    pub api_token_file: Option<PathBuf>,
    /// The certificate that the stream shows to the API server, and its private key (PEM).
    pub api_cert: Option<PathBuf>,
    pub api_key: Option<PathBuf>,
}

/// The Service whose endpoints are daemons.
#[derive(Clone, Debug)]
pub struct KubernetesService {
    /// The URL of the list of endpoints.
    list: Url,
    files: CredentialFiles,
    names: EndpointNames,
}

/// The reason why the endpoints are not known.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Certificates(String),
    #[error("the API server does not answer")]
    Exchange(#[from] reqwest::Error),
    #[error("the API server refuses the list of endpoints ({code}): {message}")]
    Refused { code: u16, message: String },
    #[error("the API server's list can't be read")]
    Answer(#[from] serde_json::Error),
}

impl KubernetesOptions {
    /// Reads `true`, `false`, or an object. An error is the path of a field, and its mistake.
    pub fn read(value: Value) -> Result<Option<Self>, (String, String)> {
        match value {
            Value::Bool(false) => Ok(None),
            Value::Bool(true) => Ok(Some(Self::default())),
            Value::Object(_) => {
                serde_path_to_error::deserialize(value)
                    .map(Some)
                    .map_err(|error| {
                        let path = error.path().to_string();
                        let path = if path == "." {
                            String::new()
                        } else {
                            format!(".{path}")
                        };
                        (path, error.into_inner().to_string())
                    })
            }
            _ => Err((
                String::new(),
                "true is expected, or an object as {service: twinprobe}".to_owned(),
            )),
        }
    }

    /// Completes the options with the values of a pod. An error has the path of a field, and what
    /// is missing in it.
    pub fn service(self) -> Result<KubernetesService, (String, String)> {
        self.in_pod(&|name| std::env::var(name).ok(), Path::new(ACCOUNT))
    }

    fn in_pod(
        self,
        variable: &dyn Fn(&str) -> Option<String>,
        account: &Path,
    ) -> Result<KubernetesService, (String, String)> {
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => read_line(&account.join("namespace")).map_err(|error| {
                let message =
                    format!("outside of a pod the namespace of the Service is needed ({error})");
                (".namespace".to_owned(), message)
            })?,
        };
        let root = match self.api_server {
            Some(url) => url,
            None => of_the_pod(variable).ok_or_else(|| {
                (
                    ".apiServer".to_owned(),
                    "outside of a pod the URL of the API server is needed".to_owned(),
                )
            })?,
        };
        let service = self.service.unwrap_or_else(|| SERVICE.to_owned());
        for (field, name) in [(".namespace", &namespace), (".service", &service)] {
            if !is_name(name) {
                return Err((
                    field.to_owned(),
                    format!("{name:?} is not a valid name in Kubernetes"),
                ));
            }
        }
        let list = list_of(&root, &namespace, &service)?;
        let names = EndpointNames {
            port: self.port.unwrap_or_else(|| EndpointNames::PORT.to_owned()),
            tls: self.tls.unwrap_or(true),
            server_name: self
                .server_name
                .unwrap_or_else(|| EndpointNames::server(&service, &namespace)),
        };
        names
            .check()
            .map_err(|message| (".serverName".to_owned(), message))?;
        if self.api_key.is_some() && self.api_cert.is_none() {
            return Err((
                ".apiKey".to_owned(),
                "a private key needs its certificate: `apiCert`".to_owned(),
            ));
        }
        let token = || self.api_cert.is_none().then(|| account.join("token"));
        let files = CredentialFiles {
            token_file: self.api_token_file.or_else(token),
            ca: Some(self.api_ca.unwrap_or_else(|| account.join("ca.crt"))),
            cert: self.api_cert,
            key: self.api_key,
        };
        Ok(KubernetesService { list, files, names })
    }
}

/// Tells whether objects of Kubernetes can have this name.
fn is_name(name: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(may)
}

fn of_the_pod(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (host, port) = (
        variable("KUBERNETES_SERVICE_HOST")?,
        variable("KUBERNETES_SERVICE_PORT")?,
    );
    Some(if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    })
}

/// Returns the URL at which the API server lists the endpoints of a Service.
fn list_of(root: &str, namespace: &str, service: &str) -> Result<Url, (String, String)> {
    let unusable = || {
        (
            ".apiServer".to_owned(),
            format!("{root} is not a URL; write https://HOST:PORT"),
        )
    };
    let mut list = Url::parse(root).map_err(|_| unusable())?;
    if list.scheme() != "https" {
        return Err(unusable());
    }
    list.set_path(&format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    ));
    list.query_pairs_mut()
        .clear()
        .append_pair("labelSelector", &format!("{OF_SERVICE}={service}"));
    Ok(list)
}

fn read_line(path: &Path) -> Result<String, KubernetesError> {
    let text = std::fs::read_to_string(path).map_err(|source| KubernetesError::File {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.trim().to_owned())
}

impl KubernetesService {
    /// Asks the API server for the daemons, by the names of their nodes.
    pub async fn daemons(&self) -> Result<BTreeMap<String, DaemonAddress>, KubernetesError> {
        let (http, token) = (
            self.client()?,
            self.files
                .token_file
                .as_deref()
                .map(read_line)
                .transpose()?,
        );
        let (mut found, mut next) = (FoundEndpoints::default(), None::<String>);
        loop {
            let mut url = self.list.clone();
            url.query_pairs_mut().append_pair("limit", PAGE);
            if let Some(next) = &next {
                url.query_pairs_mut().append_pair("continue", next);
            }
            let mut request = http.get(url);
            if let Some(token) = &token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await.map_err(reqwest::Error::without_url)?;
            let code = answer.status();
            let body = answer.bytes().await.map_err(reqwest::Error::without_url)?;
            if !code.is_success() {
                return Err(refused(code.as_u16(), &body));
            }
            let list: EndpointList = serde_json::from_slice(&body)?;
            found.add(&list, &self.names);
            next = list.next();
            if next.is_none() {
                return Ok(found.daemons());
            }
        }
    }

    fn client(&self) -> Result<reqwest::Client, KubernetesError> {
        // An error means that the process already has a cryptographic provider, which works as
        // well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates = self
            .files
            .certificates()
            .map_err(|(_, message)| KubernetesError::Certificates(message))?;
        let builder = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
        Ok(certificates.add_to(builder, true).build()?)
    }
}

fn refused(code: u16, body: &[u8]) -> KubernetesError {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let message = status.and_then(|status| Some(status["message"].as_str()?.to_owned()));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    KubernetesError::Refused { code, message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(
        options: Value,
        namespace: Option<&str>,
    ) -> Result<KubernetesService, (String, String)> {
        let account = tempfile::tempdir().unwrap();
        if let Some(namespace) = namespace {
            std::fs::write(account.path().join("namespace"), namespace).unwrap();
        }
        let variable = |name: &str| {
            let known = [
                ("KUBERNETES_SERVICE_HOST", "2001:db8::1"),
                ("KUBERNETES_SERVICE_PORT", "6443"),
            ];
            known
                .iter()
                .find(|(known, _)| *known == name && namespace.is_some())
                .map(|(_, it)| (*it).to_owned())
        };
        KubernetesOptions::read(options)?
            .unwrap()
            .in_pod(&variable, account.path())
    }

    #[test]
    fn a_pod_knows_what_is_missing() {
        let known = service(json!(true), Some("monitoring\n")).unwrap();
        let list = "https://[2001:db8::1]:6443/apis/discovery.k8s.io/v1/namespaces/monitoring/endpointslices\
                    ?labelSelector=kubernetes.io%2Fservice-name%3Dtwinprobe";
        assert_eq!(known.list.as_str(), list);
        assert_eq!(
            (known.names.tls, &*known.names.server_name),
            (true, "twinprobe.monitoring.svc")
        );
        assert_eq!(
            known.files.token_file.unwrap().file_name().unwrap(),
            "token"
        );
        let shown = service(json!({ "apiCert": "/cert", "apiKey": "/key" }), Some("n")).unwrap();
        assert_eq!(
            (shown.files.token_file, shown.files.key),
            (None, Some("/key".into()))
        );
        assert_eq!(KubernetesOptions::read(json!(false)), Ok(None));
    }

    #[test]
    fn mistakes_name_their_field() {
        let outside = json!({ "namespace": "n", "apiServer": "https://api:6443" });
        assert!(service(outside, None).is_ok());
        for (options, field) in [
            (json!(true), ".namespace"),
            (json!({ "namespace": "n" }), ".apiServer"),
            (
                json!({ "namespace": "N n", "apiServer": "https://api" }),
                ".namespace",
            ),
            (
                json!({ "namespace": "n", "apiServer": "http://api" }),
                ".apiServer",
            ),
            (
                json!({ "namespace": "n", "apiServer": "https://api", "service": "a/b" }),
                ".service",
            ),
            (
                json!({ "namespace": "n", "apiServer": "https://api", "serverName": "a b" }),
                ".serverName",
            ),
            (
                json!({ "namespace": "n", "apiServer": "https://api", "serverName": "192.0.2.1" }),
                ".serverName",
            ),
            (
                json!({ "namespace": "n", "apiServer": "https://api", "apiKey": "/key" }),
                ".apiKey",
            ),
            (json!({ "port": 9470 }), ".port"),
            (json!({ "ports": "api" }), ".ports"),
            (json!("twinprobe"), ""),
        ] {
            let (place, message) = service(options.clone(), None).unwrap_err();
            assert_eq!(place, field, "{options}: {message}");
        }
    }
}
