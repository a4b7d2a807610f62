//! Messages to receivers that are no daemon: the notifications of rules.

use std::time::Duration;

use serde_json::Value;

use crate::transport::builder;

/// A sender of messages. It follows no redirect and keeps no connection.
#[derive(Clone, Debug)]
pub struct Notifier(reqwest::Client);

/// The header that tells a repeat of a message.
const IDENTITY: &str = "Idempotency-Key";

impl Notifier {
    /// Fails if TLS can't be set up.
    pub fn new() -> Result<Self, reqwest::Error> {
        builder(0).build().map(Self)
    }

    /// Sends a message in JSON and waits for a status of success. An error says why, and does not show the path of the URL, which
    /// may be a secret.
    pub async fn send(
        &self,
        url: &str,
        identity: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<(), String> {
        let request = self.0.post(url).header(IDENTITY, identity).json(body).timeout(patience);
        let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_else(|| "the receiver".to_owned());
        let response = request.send().await.map_err(|error| {
            let error = error.without_url();
            let mut reason = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(inner) = cause {
                reason = format!("{reason}: {inner}");
                cause = inner.source();
            }
            format!("{host} was not notified: {reason}")
        })?;
        let status = response.status();
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("{host} answered a notification with {status}"))
        }
    }
}
