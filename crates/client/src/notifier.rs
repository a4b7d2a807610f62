//! Messages to receivers other than daemons: the notifications of rules. They follow Standard
//! Webhooks, version 1.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use reqwest::Url;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::credentials::Credentials;
use crate::error::HttpCause;
use crate::transport::builder;

/// The header that tells a repeat of a message.
const IDENTITY: &str = "Idempotency-Key";
/// The headers of Standard Webhooks: the message, the time of this attempt in seconds since the
/// Unix epoch, the signatures.
const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
/// The prefix of keys, and the number of bytes of a key.
const PREFIX: &str = "whsec_";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The keys that sign messages. While a receiver changes to a new key there are two of them.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKeys(Vec<Vec<u8>>);

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({} of them)", self.0.len())
    }
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Notification<'a> {
    pub url: &'a str,
    /// The identity that all attempts share.
    pub identity: &'a str,
    pub body: &'a Value,
    pub keys: Option<&'a SigningKeys>,
    /// The longest wait for the receiver's answer.
    pub patience: Duration,
}

impl SigningKeys {
    /// Reads keys, one in each line: `whsec_` and base64. An error names the line, and does not
    /// show the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let keys = lines.map(|(index, line)| {
            let encoded = line.trim().strip_prefix(PREFIX);
            let key = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
            key.filter(|key| KEY_BYTES.contains(&key.len())).ok_or_else(|| {
                let line = index + 1;
                format!(
                    "line {line} is not a key: {PREFIX} and the base64 of 24 to 64 bytes, with its padding"
                )
            })
        });
        let keys = keys.collect::<Result<Vec<_>, String>>()?;
        if keys.is_empty() {
            Err("the file has no key".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Signs a message with each key.
    fn signatures(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signature = |key: &Vec<u8>| {
            let mut mac =
                Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

/// The identity in the form of Standard Webhooks: without dots, because dots separate the parts of
/// the signed text.
fn id(identity: &str) -> String {
    let digest = Sha256::digest(identity);
    let digits: String = digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("msg_{digits}")
}

/// The reason why a message did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyFault {
    /// Shows neither the path nor the password of the URL, which may be secrets.
    pub reason: String,
    /// True if a later attempt may succeed.
    pub again: bool,
}

/// Sends a message in JSON and waits for a status of success. It follows no redirect, and reads no
/// body of the answer.
pub async fn notify(message: &Notification<'_>) -> Result<(), NotifyFault> {
    let fault = |again| move |reason: String| NotifyFault { reason, again };
    let url = Url::parse(message.url);
    let url = url.map_err(|error| {
        fault(false)(format!("the URL of a notification can't be used: {error}"))
    })?;
    let host = url.host_str().unwrap_or("the receiver").to_owned();
    let builder = Credentials::default().add_to(builder(0), url.scheme() == "https");
    let failed = |error: reqwest::Error| {
        fault(true)(format!(
            "{host} was not notified: {}",
            HttpCause(error.without_url())
        ))
    };
    let http = builder.build().map_err(failed)?;
    let (id, timestamp) = (id(message.identity), Timestamp::now().as_second());
    let body = message.body.to_string().into_bytes();
    let mut request = http
        .post(url)
        .header(IDENTITY, message.identity)
        .header("content-type", "application/json");
    request = request.header(ID, &id).header(TIMESTAMP, timestamp);
    if let Some(keys) = message.keys {
        request = request.header(SIGNATURE, keys.signatures(&id, timestamp, &body));
    }
    let answer = request
        .body(body)
        .timeout(message.patience)
        .send()
        .await
        .map_err(failed)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    Err(fault(true)(format!(
        "{host} answered a notification with {status}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the libraries of Standard Webhooks.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let keys = SigningKeys::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signed = keys.signatures(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn keys_are_checked_and_not_shown() {
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let two = SigningKeys::parse(&format!("{key}\n\n{key}\n")).unwrap();
        assert_eq!(two.signatures("a", 1, b"b").split(' ').count(), 2);
        assert!(!format!("{two:?}").contains("MfKQ"));
        for (bad, said) in [
            ("", "no key"),
            ("secret", "line 1"),
            (&format!("{key}\nwhsec_MfKQ"), "line 2"),
        ] {
            let error = SigningKeys::parse(bad).unwrap_err();
            assert!(error.contains(said) && !error.contains("MfKQ"), "{error}");
        }
        assert!(id("a.b/c").starts_with("msg_") && !id("a.b/c").contains('.'));
    }
}
