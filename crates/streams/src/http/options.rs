//! The options of a connection over HTTP, for any content.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::config::tls_mode::is_here;
use crate::sources::credentials::CredentialFiles;

/// The address of a server, and the credentials for it.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    pub url: String,
    /// A file with a token: `Authorization: Bearer`.
    pub token_file: Option<PathBuf>,
    /// A user, with the password in `password_file`: `Authorization: Basic`.
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// Authorities that have signed the server's certificate (PEM).
    pub ca: Option<PathBuf>,
    /// The certificate that the stream shows (PEM).
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub headers: BTreeMap<String, String>,
    /// A file with further headers that are secrets, one in each line.
    pub headers_file: Option<PathBuf>,
    /// A file that contains the secret part of the query.
    pub query_file: Option<PathBuf>,
}

impl HttpOptions {
    /// Checks the rules that types do not express. Returns the field of a configuration and its
    /// mistake.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        let parsed = Url::parse(&self.url)
            .ok()
            .filter(|url| ["http", "https"].contains(&url.scheme()));
        let Some(url) = parsed else {
            return wrong(
                "url",
                "http://HOST:PORT/PATH or https://HOST:PORT/PATH is expected",
            );
        };
        if !url.username().is_empty() || url.password().is_some() {
            return wrong(
                "url",
                "a URL has no user and no password; write `user` and `passwordFile`",
            );
        }
        let is_plain = self.is_plain();
        for (field, file) in [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)] {
            if is_plain && file.is_some() {
                return wrong(field, "certificates need a URL with https");
            }
        }
        if self.key.is_some() && self.cert.is_none() {
            return wrong(
                "key",
                "a private key needs its certificate: name it as `cert`",
            );
        }
        if self.user.is_some() != self.password_file.is_some() {
            return wrong("user", "`user` and `passwordFile` go together");
        }
        if self.token_file.is_some() && self.user.is_some() {
            return wrong("tokenFile", "a message has a token or a user, not both");
        }
        let has_secret = [
            &self.token_file,
            &self.password_file,
            &self.headers_file,
            &self.query_file,
        ]
        .iter()
        .any(|file| file.is_some());
        if has_secret && is_plain && !url.host_str().is_some_and(is_here) {
            return wrong(
                "url",
                "a secret needs https: with http everybody on the way can read it",
            );
        }
        self.check_headers()
    }

    fn check_headers(&self) -> Result<(), (&'static str, String)> {
        for (name, value) in &self.headers {
            let is_header =
                name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok();
            if !is_header {
                return Err(("headers", format!("{name:?} can't be the name of a header")));
            }
            if name.eq_ignore_ascii_case(AUTHORIZATION.as_str()) {
                let message = "a secret must be in a file: write `tokenFile`, `user` and `passwordFile`, or `headersFile`";
                return Err(("headers", message.to_owned()));
            }
        }
        Ok(())
    }

    /// True for a URL without TLS.
    pub fn is_plain(&self) -> bool {
        Url::parse(&self.url).is_ok_and(|url| url.scheme() == "http")
    }

    /// The files with certificates.
    pub fn certificates(&self) -> CredentialFiles {
        let [ca, cert, key] = [&self.ca, &self.cert, &self.key].map(Clone::clone);
        CredentialFiles {
            token_file: None,
            ca,
            cert,
            key,
        }
    }

    /// The URL for logs and metrics. It has no query, because some queries hold secrets.
    pub fn address(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or_default()
    }
}
