//! Messages to receivers other than daemons: the notifications of rules.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use crate::error::HttpCause;
use crate::transport::builder;

/// The header that tells a repeat of a message.
const IDENTITY: &str = "Idempotency-Key";

/// Sends a message in JSON and waits for a status of success. Follows no redirect. An error says why, and does not show the path
/// of the URL, which may be a secret.
pub async fn notify(url: &str, identity: &str, body: &Value, patience: Duration) -> Result<(), String> {
    let url = Url::parse(url).map_err(|error| format!("the URL of a notification can't be used: {error}"))?;
    let host = url.host_str().unwrap_or("the receiver").to_owned();
    // The authorities of the system are hundreds of files, and a small container has none.
    let builder = if url.scheme() == "https" { builder(0) } else { builder(0).tls_certs_only([]) };
    let failed = |error: reqwest::Error| format!("{host} was not notified: {}", HttpCause(error));
    let http = builder.build().map_err(failed)?;
    let request = http.post(url).header(IDENTITY, identity).json(body).timeout(patience);
    let status = request.send().await.map_err(failed)?.status();
    if status.is_success() { Ok(()) } else { Err(format!("{host} answered a notification with {status}")) }
}
