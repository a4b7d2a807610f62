//! Questions to servers with the API of Prometheus: numbers that they have stored over a range of
//! time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url};

use crate::credentials::Credentials;
use crate::error::HttpCause;
use crate::samples::answer;
use crate::server;
use crate::transport::builder;

/// The path of the API below the URL of the server.
const PATH: [&str; 3] = ["api", "v1", "query_range"];
/// The header by which Mimir and its relatives distinguish tenants.
const TENANT: &str = "x-scope-orgid";
/// The most bytes of an answer.
const MOST_BYTES: usize = 8 << 20;
/// The most characters of a server's own words in an error.
const MOST_WORDS: usize = 300;

/// A server that stores samples: Prometheus, or another server with its API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleServer {
    url: Url,
    tenant: Option<String>,
}

/// A question: an expression at each step of a range of time. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeQuestion {
    pub expression: String,
    pub start: f64,
    pub end: f64,
    /// In seconds.
    pub step: i64,
}

impl FromStr for SampleServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(
                "it is not a URL of HTTP, as is https://prometheus.example:9090".to_owned(),
            );
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "secrets do not stand in a URL, which each user of the machine can see".to_owned(),
            );
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it ends with a path, below which /api/v1/query_range is".to_owned());
        }
        Ok(Self { url, tenant: None })
    }
}

/// Shows the host of the server, and the port if it is not the default port of the scheme.
impl fmt::Display for SampleServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host_str().unwrap_or_default())?;
        self.url.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl SampleServer {
    /// Returns the same server with another tenant, whose samples it answers with.
    pub fn of_tenant(self, tenant: Option<String>) -> Self {
        Self { tenant, ..self }
    }

    /// Tells whether others on the way could read the data.
    pub fn is_exposed(&self) -> bool {
        server::is_exposed(&self.url)
    }

    /// Prepares the client for questions, which may read the certificate authorities of the system.
    /// Opens no connection.
    pub fn prepare(&self, credentials: &Credentials) -> Result<Client, String> {
        let made = credentials
            .add_to(builder(0), self.url.scheme() == "https")
            .build();
        made.map_err(|error| format!("questions to {self} are not possible: {}", HttpCause(error)))
    }

    /// Asks a question. Returns the body of the answer, for [`answer::range_answer`]. An error
    /// names the server and what to do.
    pub async fn ask(
        &self,
        http: &Client,
        question: &RangeQuestion,
        patience: Duration,
    ) -> Result<Vec<u8>, String> {
        let asked = tokio::time::timeout(patience, self.exchange(http, question, patience));
        asked.await.unwrap_or_else(|_| {
            Err(format!(
                "{self} has not answered within {} s; ask for a shorter time",
                patience.as_secs()
            ))
        })
    }

    async fn exchange(
        &self,
        http: &Client,
        question: &RangeQuestion,
        patience: Duration,
    ) -> Result<Vec<u8>, String> {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(PATH);
        }
        let broken = |error| {
            format!(
                "{self} can't be asked: {}; is it running, and --history right?",
                HttpCause(error)
            )
        };
        let mut request = http
            .post(url)
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some(tenant) = &self.tenant {
            request = request.header(TENANT, tenant);
        }
        let mut answer = request
            .body(form(question, patience))
            .send()
            .await
            .map_err(broken)?;
        let (status, mut body) = (answer.status(), Vec::new());
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > MOST_BYTES {
                let most = MOST_BYTES >> 20;
                return Err(format!(
                    "{self} answers with more than {most} MiB; ask for fewer keys or a longer step"
                ));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            Ok(body)
        } else {
            Err(self.refused(status, &body))
        }
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> String {
        let told = answer::error(body);
        let words = told.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        let words: String = words
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(MOST_WORDS)
            .collect();
        let advice = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "; see --history-token and --history-tenant"
            }
            StatusCode::NOT_FOUND => "; --history is the URL below which /api/v1/query_range is",
            _ => "",
        };
        format!("{self} refuses the question with {status}: {words}{advice}")
    }
}

/// Encodes a question. `nocache` keeps VictoriaMetrics from moving the times; others ignore it.
fn form(question: &RangeQuestion, patience: Duration) -> String {
    let mut url = Url::parse("http://localhost").expect("a constant URL");
    url.query_pairs_mut()
        .append_pair("query", &question.expression)
        .append_pair("start", &format!("{:.3}", question.start))
        .append_pair("end", &format!("{:.3}", question.end))
        .append_pair("step", &question.step.to_string())
        .append_pair("timeout", &format!("{}s", patience.as_secs()))
        .append_pair("nocache", "1");
    url.query().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_without_secrets() {
        let server = |text: &str| text.parse::<SampleServer>();
        for (text, shown, exposed) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090", false),
            ("http://[::1]:9090/", "[::1]:9090", false),
            (
                "http://prometheus.example:9090",
                "prometheus.example:9090",
                true,
            ),
            ("https://mimir.example/prometheus", "mimir.example", false),
        ] {
            let server = server(text).unwrap();
            assert_eq!(
                (&*server.to_string(), server.is_exposed()),
                (shown, exposed)
            );
        }
        for text in [
            "prometheus:9090",
            "ftp://a",
            "http://me:secret@a",
            "http://a?b",
            "unix:/a",
            "",
        ] {
            assert!(server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn refusals_have_the_words_of_the_server_and_say_what_to_do() {
        let server: SampleServer = "http://a:1".parse().unwrap();
        let refusal = br#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
        let words = server.refused(StatusCode::BAD_REQUEST, refusal);
        assert_eq!(
            words,
            "a:1 refuses the question with 400 Bad Request: parse error"
        );
        assert!(
            server
                .refused(StatusCode::UNAUTHORIZED, b"no org id")
                .contains("--history-tenant")
        );
    }

    #[test]
    fn a_question_is_encoded() {
        let question = RangeQuestion {
            expression: "a{b=\"c d\"}".to_owned(),
            start: 60.437,
            end: 120.437,
            step: 60,
        };
        assert_eq!(
            form(&question, Duration::from_secs(5)),
            "query=a%7Bb%3D%22c+d%22%7D&start=60.437&end=120.437&step=60&timeout=5s&nocache=1"
        );
    }
}
