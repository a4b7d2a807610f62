//! The meaning of the answer to a message.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::protocol::PushProtocol;
use crate::http::access::HttpAnswer;
use crate::receiver::SendError;

/// The characters of an answer that an error shows.
const SHOWN: usize = 300;
/// Words in answers that mean the same as status 413: the message has too many bytes.
const TOO_LARGE: [&str; 2] = ["too large", "too big"];

/// The answer of a receiver to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushAnswer {
    /// The receiver has stored the item, except for this many refused samples.
    Taken(Option<(u64, String)>),
    /// The item has too many bytes.
    TooLarge(String),
    /// The receiver will never take the same message.
    Refused(String),
}

/// Reads an answer. After an error the caller can send the same message again.
pub fn read<P: PushProtocol>(
    protocol: &P,
    target: &str,
    HttpAnswer {
        status,
        headers,
        body,
    }: &HttpAnswer,
) -> Result<PushAnswer, SendError> {
    let status = *status;
    if status.is_success() {
        return Ok(PushAnswer::Taken(protocol.rejected(body)));
    }
    let words: String = protocol.words(body).trim().chars().take(SHOWN).collect();
    let reason = format!("{status} {words}").trim_end().to_owned();
    let is_large = status == StatusCode::PAYLOAD_TOO_LARGE
        || status == StatusCode::BAD_REQUEST && TOO_LARGE.iter().any(|text| words.contains(text));
    match status {
        _ if is_large => Ok(PushAnswer::TooLarge(reason)),
        status if is_about_access(status) => {
            let hint = match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    "; see `tokenFile`, `user` and `passwordFile`, `cert` and `key`"
                }
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                    "; check the path of `url`, and whether the receiver accepts this kind of message"
                }
                _ => "",
            };
            Err(SendError::new(format!("{target}: {reason}{hint}")))
        }
        status if protocol.is_final(status) => Ok(PushAnswer::Refused(reason)),
        _ => {
            Err(SendError::new(format!("{target}: {reason}"))
                .after(pause(headers, Timestamp::now())))
        }
    }
}

/// Tells whether a status is about the way to the receiver. It says nothing about the data, so the
/// data must not be lost.
fn is_about_access(status: StatusCode) -> bool {
    let passes = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
    ];
    status.is_redirection() || passes.contains(&status)
}

/// Reads the time for which the receiver wants no message: seconds, or a date.
fn pause(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(at.duration_since(now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_say_when_to_come_again() {
        let now: Timestamp = "2026-11-27T09:00:00Z".parse().unwrap();
        let of = |text: &str| {
            pause(
                &[(RETRY_AFTER, text.parse().unwrap())].into_iter().collect(),
                now,
            )
        };
        assert_eq!(of("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            of("Fri, 27 Nov 2026 09:00:30 GMT"),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            (of("Fri, 27 Nov 2026 08:00:30 GMT"), of("soon")),
            (None, None)
        );
        assert_eq!(pause(&HeaderMap::new(), now), None);
    }
}
