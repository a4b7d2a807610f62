//! The options of receivers that take samples over HTTP.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::config::tls_mode::is_here;
use crate::receivers::kind::ReceiverUrl;

/// Fewer bytes are not enough for one point with long labels.
const LEAST_BYTES: usize = 4096;
/// The most that common receivers take.
const MOST_BYTES: usize = 20 << 20;

/// Options of a receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PushOptions {
    /// Where messages are posted.
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
    /// Further labels of each sample, or attributes of the resource.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The most bytes of a message before compression.
    pub max_bytes: Option<usize>,
}

impl PushOptions {
    /// Reads a URL whose scheme ends in `+http` or `+https`, or stands for one of them. `path` is for a URL without one, `port`
    /// for a host without one.
    pub fn from_url(url: &ReceiverUrl, path: &str, port: Option<u16>) -> Result<Self, String> {
        let scheme = if url.scheme.ends_with("https") { "https" } else { "http" };
        if url.authority.is_empty() || url.authority.contains(',') {
            return Err(format!("{}://HOST:PORT/PATH is expected, with one host", url.scheme));
        }
        let path = if url.path.is_empty() { path } else { &url.path };
        let mut parsed = Url::parse(&format!("{scheme}://{}/{path}", url.authority))
            .map_err(|error| format!("{} can't be a host with a port: {error}", url.authority))?;
        let has_port = url.authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
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
            labels: BTreeMap::new(),
            max_bytes: None,
        })
    }

    /// Checks what the types do not say. Returns the field and its mistake.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        let parsed = Url::parse(&self.url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
        let Some(url) = parsed else {
            return wrong("url", "http://HOST:PORT/PATH or https://HOST:PORT/PATH is expected");
        };
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("url", "a URL has no user and no password; write `user` and `passwordFile`");
        }
        let is_plain = url.scheme() == "http";
        for (field, file) in [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)] {
            if is_plain && file.is_some() {
                return wrong(field, "certificates need a URL with https");
            }
        }
        if self.key.is_some() && self.cert.is_none() {
            return wrong("key", "a private key needs its certificate: name it as `cert`");
        }
        if self.user.is_some() != self.password_file.is_some() {
            return wrong("user", "`user` and `passwordFile` go together");
        }
        if self.token_file.is_some() && self.user.is_some() {
            return wrong("tokenFile", "a message has a token or a user, not both");
        }
        let has_secret = self.token_file.is_some() || self.user.is_some();
        if has_secret && is_plain && !url.host_str().is_some_and(is_here) {
            return wrong("url", "a secret needs https: over http everybody on the way can read it");
        }
        self.check_headers()?;
        match self.max_bytes {
            Some(bytes) if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes) => {
                Err(("maxBytes", format!("{bytes} is not from {LEAST_BYTES} to {MOST_BYTES}")))
            }
            _ => Ok(()),
        }
    }

    fn check_headers(&self) -> Result<(), (&'static str, String)> {
        for (name, value) in &self.headers {
            let is_header = name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok();
            if !is_header {
                return Err(("headers", format!("{name:?} can't be the name of a header")));
            }
            if name.eq_ignore_ascii_case(AUTHORIZATION.as_str()) {
                let message = "a secret stands in a file: write `tokenFile`, or `user` and `passwordFile`";
                return Err(("headers", message.to_owned()));
            }
        }
        let is_label = |name: &String| {
            let may = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(may)
        };
        match self.labels.keys().find(|name| !is_label(name)) {
            Some(name) => {
                let message = format!(
                    "{name:?} can't be the name of a label; a letter is expected, then letters, digits, _"
                );
                Err(("labels", message))
            }
            None => Ok(()),
        }
    }

    /// The URL for logs and metrics: without a query, in which some have secrets.
    pub fn address(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or_default()
    }
}
