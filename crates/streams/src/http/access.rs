//! The connection to a receiver, with its credentials.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, StatusCode, Url};

use super::options::HttpOptions;
use crate::receiver::SendError;
use crate::sources::credentials::CredentialFiles;

/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An HTTP client. The files of the options are read at its creation.
#[derive(Clone, Debug)]
pub struct HttpAccess {
    http: reqwest::Client,
    /// The URL in the options, with the secret part of its query added.
    url: Url,
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
        let builder = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(Policy::none());
        let http = certified(builder, &options.certificates(), !options.is_plain())?;
        let url = Url::parse(&options.url);
        let mut url = url.map_err(|error| SendError::caused(options.address(), &error))?;
        if let Some(path) = &options.query_file {
            add_query(&mut url, &line(path)?);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            // `HttpOptions::check` has refused all other names and values.
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), value.parse::<HeaderValue>())
            {
                headers.insert(name, value);
            }
        }
        if let Some(path) = &options.headers_file {
            headers.extend(headers_of(path, &read(path)?)?);
        }
        if let Some(path) = &options.token_file {
            headers.insert(
                AUTHORIZATION,
                secret(path, &format!("Bearer {}", line(path)?))?,
            );
        }
        let mut access = Self {
            http,
            url,
            headers,
            target: options.address().to_owned(),
        };
        if let (Some(user), Some(path)) = (&options.user, &options.password_file) {
            let request = access
                .http
                .post(&options.url)
                .basic_auth(user, Some(line(path)?))
                .build();
            let request =
                request.map_err(|error| SendError::caused("no HTTP", &error.without_url()))?;
            access.headers.extend(request.headers().clone());
        }
        Ok(access)
    }

    /// The URL to which messages are posted.
    pub fn url(&self) -> Url {
        self.url.clone()
    }

    /// Posts a body with these headers and those of the configuration. Returns the answer with any
    /// status.
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
        // Headers in the configuration replace the headers of the request.
        let response = request
            .headers(self.headers.clone())
            .send()
            .await
            .map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(HttpAnswer {
            status,
            headers,
            body: response.bytes().await.map_err(failed)?,
        })
    }
}

/// Makes a client with certificates, which it reads. `is_tls` is for URLs with https.
pub fn certified(
    builder: ClientBuilder,
    files: &CredentialFiles,
    is_tls: bool,
) -> Result<reqwest::Client, SendError> {
    // An error means that the process already has a cryptographic provider, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = files
        .certificates()
        .map_err(|(_, message)| SendError::new(message))?;
    let built = certificates.add_to(builder, is_tls).build();
    built.map_err(|error| SendError::caused("no HTTP (`ca` names a file with authorities)", &error))
}

/// Reads headers, one in each line: `NAME: VALUE`. An error names the line, and shows no value.
fn headers_of(path: &Path, text: &[u8]) -> Result<HeaderMap, SendError> {
    let text = String::from_utf8_lossy(text);
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let headers = lines.map(|(index, line)| {
        let (name, value) = line.split_once(':').unwrap_or_default();
        let header = name
            .trim()
            .parse::<HeaderName>()
            .ok()
            .zip(value.trim().parse::<HeaderValue>().ok());
        let (name, mut value) = header
            .filter(|(_, value)| !value.is_empty())
            .ok_or_else(|| {
                let place = format!("{}:{}", path.display(), index + 1);
                SendError::new(format!(
                    "{place}: a header is expected, as in X-Api-Key: SECRET"
                ))
            })?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    let headers = headers.collect::<Result<HeaderMap, SendError>>()?;
    if headers.is_empty() {
        return Err(SendError::new(format!(
            "{} holds no header",
            path.display()
        )));
    }
    Ok(headers)
}

/// Appends the query in a file to the query of a URL.
fn add_query(url: &mut Url, more: &str) {
    let more = more.trim_start_matches('?');
    let query = url
        .query()
        .filter(|query| !query.is_empty())
        .map(|query| format!("{query}&{more}"));
    url.set_query(Some(query.as_deref().unwrap_or(more)));
}

fn read(path: &Path) -> Result<Vec<u8>, SendError> {
    std::fs::read(path).map_err(|error| SendError::caused(&path.display().to_string(), &error))
}

/// Reads a secret, which ends at the end of the first line.
fn line(path: &Path) -> Result<String, SendError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(SendError::new(format!(
            "{} holds no secret",
            path.display()
        )));
    }
    Ok(line.to_owned())
}

fn secret(path: &Path, text: &str) -> Result<HeaderValue, SendError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        SendError::new(format!(
            "{}: a header can't hold this secret",
            path.display()
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_needs_no_authorities() {
        let none = CredentialFiles::default();
        assert!(certified(reqwest::Client::builder(), &none, false).is_ok());
        let missing = CredentialFiles {
            ca: Some("/none.pem".into()),
            ..CredentialFiles::default()
        };
        let error = certified(reqwest::Client::builder(), &missing, true)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/none.pem"), "{error}");
    }

    #[test]
    fn secrets_of_files_are_added_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("headers"), "X-Api-Key: hunter2\n\nX-Scope-OrgID:a\n").unwrap();
        std::fs::write(at("query"), "?api_key=hunter3\n").unwrap();
        let mut options = HttpOptions {
            url: "http://127.0.0.1:1/write?db=x".to_owned(),
            headers: [("X-Scope-OrgID".to_owned(), "b".to_owned())].into(),
            headers_file: Some(at("headers")),
            query_file: Some(at("query")),
            ..HttpOptions::default()
        };
        options.check().unwrap();
        let access = HttpAccess::new(&options).unwrap();
        assert_eq!(
            (
                access.headers["x-api-key"].as_bytes(),
                access.headers["x-scope-orgid"].as_bytes()
            ),
            (&b"hunter2"[..], &b"a"[..])
        );
        assert_eq!(
            access.url().as_str(),
            "http://127.0.0.1:1/write?db=x&api_key=hunter3"
        );
        assert!(
            !format!("{:?}", access.headers).contains("hunter2")
                && !access.target.contains("hunter3")
        );
        for (text, line) in [
            ("X-Api-Key hunter2\n", ":1:"),
            ("a: b\nX-Api-Key:\n", ":2:"),
            ("\n", "no header"),
        ] {
            std::fs::write(at("headers"), text).unwrap();
            let error = HttpAccess::new(&options).unwrap_err().to_string();
            assert!(
                error.contains(line) && !error.contains("hunter2"),
                "{error}"
            );
        }
        options.url = "http://host/write".to_owned();
        assert_eq!(options.check().unwrap_err().0, "url");
    }
}
