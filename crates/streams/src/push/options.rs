//! The options of receivers that take samples over HTTP.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;
use serde::Deserialize;

use crate::http::options::HttpOptions;
use crate::receivers::kind::ReceiverUrl;

/// The least size of a message, which must be enough for one point with long labels.
const LEAST_BYTES: usize = 4096;
/// The most that common receivers take.
const MOST_BYTES: usize = 20 << 20;

/// Options of a receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PushOptions {
    /// The URL to which messages are posted.
    pub url: String,
    /// A file with a token: `Authorization: Bearer`.
    pub token_file: Option<PathBuf>,
    /// A user, with the password in `passwordFile`: `Authorization: Basic`.
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// Authorities that have signed the server's certificate (PEM).
    pub ca: Option<PathBuf>,
    /// The certificate that the stream shows (PEM).
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Further headers, such as that of a tenant.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A file with further headers that are secrets, such as the key of an API: `NAME: VALUE` in
    /// each line.
    pub headers_file: Option<PathBuf>,
    /// A file with the part of the URL's query that is secret: `NAME=VALUE&...`.
    pub query_file: Option<PathBuf>,
    /// Additional labels of each sample, or additional attributes of the resource.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The most bytes of a message before compression.
    pub max_bytes: Option<usize>,
    /// For OTLP, the place of the attribute with the number of the window.
    pub seq: Option<SeqPlace>,
}

/// The place of the attribute with the number of the window. This attribute and the attributes of
/// the resource identify the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeqPlace {
    /// The scope that the points of a window share.
    #[default]
    Scope,
    /// No place: for databases that make labels from the attributes of the scope.
    None,
    /// An attribute of each point. In a database of time series, each window then begins new
    /// series.
    Points,
}

impl PushOptions {
    /// Reads a URL. Its scheme ends in `+http` or `+https`, or is a short form of such a scheme. A
    /// URL without a path gets `path`, a host without a port gets `port`.
    pub fn from_url(url: &ReceiverUrl, path: &str, port: Option<u16>) -> Result<Self, String> {
        let scheme = if url.scheme.ends_with("https") {
            "https"
        } else {
            "http"
        };
        if url.authority.is_empty() || url.authority.contains(',') {
            return Err(format!(
                "{}://HOST:PORT/PATH is expected, with one host",
                url.scheme
            ));
        }
        let path = if url.path.is_empty() { path } else { &url.path };
        let mut parsed = Url::parse(&format!("{scheme}://{}/{path}", url.authority))
            .map_err(|error| format!("{} can't be a host with a port: {error}", url.authority))?;
        let has_port = url
            .authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        if let Some(port) = port.filter(|_| !has_port) {
            let _ = parsed.set_port(Some(port));
        }
        Ok(Self {
            url: parsed.into(),
            token_file: None,
            user: None,
            password_file: None,
            ca: None,
            cert: None,
            key: None,
            headers: BTreeMap::new(),
            headers_file: None,
            query_file: None,
            labels: BTreeMap::new(),
            max_bytes: None,
            seq: None,
        })
    }

    /// Checks the rules that types do not express. Returns the field and its mistake.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.http().check()?;
        match self.max_bytes {
            Some(bytes) if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes) => Err((
                "maxBytes",
                format!("{bytes} is not from {LEAST_BYTES} to {MOST_BYTES}"),
            )),
            _ => Ok(()),
        }
    }

    /// Checks the names of labels: a letter, then letters, digits, `_`, and any of `more`.
    pub fn check_labels(&self, more: &[char]) -> Result<(), (&'static str, String)> {
        let is_label = |name: &String| {
            let may = |c: char| c.is_ascii_alphanumeric() || c == '_' || more.contains(&c);
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(may)
        };
        match self.labels.keys().find(|name| !is_label(name)) {
            Some(name) => {
                let more: String = more.iter().flat_map(|c| [',', ' ', *c]).collect();
                let message = format!(
                    "{name:?} can't be the name of a label; a letter is expected, then letters, digits, _{more}"
                );
                Err(("labels", message))
            }
            None => Ok(()),
        }
    }

    /// Everything that decides where samples are stored. Headers or users may select a tenant, and
    /// queries may select a database.
    pub fn identity(&self) -> String {
        let Self {
            url,
            token_file,
            user,
            cert,
            headers,
            headers_file,
            query_file,
            labels,
            ..
        } = self;
        format!(
            "{:?}",
            (
                url,
                token_file,
                user,
                cert,
                headers,
                headers_file,
                query_file,
                labels
            )
        )
    }

    /// The options of the connection.
    pub fn http(&self) -> HttpOptions {
        HttpOptions {
            url: self.url.clone(),
            token_file: self.token_file.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            headers: self.headers.clone(),
            headers_file: self.headers_file.clone(),
            query_file: self.query_file.clone(),
        }
    }

    /// Returns the URL for logs and metrics.
    pub fn address(&self) -> String {
        self.http().address().to_owned()
    }
}
