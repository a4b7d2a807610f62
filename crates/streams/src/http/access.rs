//! The connection to a receiver, with its credentials.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};

use super::options::HttpOptions;
use crate::receiver::SendError;

/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An HTTP client. The files of the options are read when it is made.
#[derive(Clone, Debug)]
pub struct HttpAccess {
    http: reqwest::Client,
    headers: HeaderMap,
    /// The address for errors.
    target: String,
}

/// The answer of a server.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpAccess {
    /// Reads the files; contacts nothing yet.
    pub fn new(options: &HttpOptions) -> Result<Self, SendError> {
        // An error means that the process has a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder().timeout(PATIENCE).redirect(Policy::none());
        if let Some(path) = &options.ca {
            let authorities = reqwest::Certificate::from_pem_bundle(&read(path)?)
                .map_err(|error| SendError::caused(&path.display().to_string(), &error))?;
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(path) = &options.cert {
            let mut identity = read(path)?;
            if let Some(key) = &options.key {
                identity.push(b'\n');
                identity.extend(read(key)?);
            }
            let identity = reqwest::Identity::from_pem(&identity)
                .map_err(|error| SendError::caused(&path.display().to_string(), &error))?;
            builder = builder.identity(identity);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            // `HttpOptions::check` has refused all others.
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                headers.insert(name, value);
            }
        }
        if let Some(path) = &options.token_file {
            headers.insert(AUTHORIZATION, secret(path, &format!("Bearer {}", line(path)?))?);
        }
        let http = builder.build().map_err(|error| SendError::caused("no HTTP", &error))?;
        let mut access = Self { http, headers, target: options.address().to_owned() };
        if let (Some(user), Some(path)) = (&options.user, &options.password_file) {
            let request = access.http.post(&options.url).basic_auth(user, Some(line(path)?)).build();
            let request = request.map_err(|error| SendError::caused("no HTTP", &error.without_url()))?;
            access.headers.extend(request.headers().clone());
        }
        Ok(access)
    }

    /// Posts a body with these headers and those of the configuration. Returns the answer with any status.
    pub async fn post(
        &self,
        url: Url,
        headers: &[(&'static str, &'static str)],
        body: Vec<u8>,
    ) -> Result<HttpAnswer, SendError> {
        let failed = |error: reqwest::Error| SendError::caused(&self.target, &error.without_url());
        let mut request = self.http.post(url).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // Headers of the configuration replace the request's own.
        let response = request.headers(self.headers.clone()).send().await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(HttpAnswer { status, headers, body: response.bytes().await.map_err(failed)? })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, SendError> {
    std::fs::read(path).map_err(|error| SendError::caused(&path.display().to_string(), &error))
}

/// Reads a secret, which ends at the end of the first line.
fn line(path: &Path) -> Result<String, SendError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(SendError::new(format!("{} holds no secret", path.display())));
    }
    Ok(line.to_owned())
}

fn secret(path: &Path, text: &str) -> Result<HeaderValue, SendError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| SendError::new(format!("{}: a header can't hold this secret", path.display())))?;
    value.set_sensitive(true);
    Ok(value)
}
