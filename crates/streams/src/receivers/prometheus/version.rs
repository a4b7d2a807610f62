//! The version of the protocol that a receiver reads.

use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::StatusCode;

use crate::http::access::HttpAnswer;

/// The header that shows that the receiver has read a message of version 2.0. A receiver of 1.0
/// takes such a message as empty.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";

/// The version is unknown: the stream tries 2.0.
const TRIED: u8 = 0;
/// The receiver has read 2.0.
const SECOND: u8 = 1;
/// The receiver reads 1.0.
const FIRST: u8 = 2;

/// The version that a receiver reads, as far as it is known.
#[derive(Debug, Default)]
pub struct RemoteVersion(AtomicU8);

impl RemoteVersion {
    /// Tells whether messages are in version 2.0.
    pub fn is_second(&self) -> bool {
        self.0.load(Ordering::Relaxed) != FIRST
    }

    /// Returns true if an answer to a message of version 2.0 shows that the receiver reads 1.0.
    /// From then on, messages are in version 1.0.
    pub fn has_turned(&self, answer: &HttpAnswer) -> bool {
        let known = self.0.load(Ordering::Relaxed);
        if known == FIRST {
            return false;
        }
        if answer.headers.contains_key(WRITTEN) {
            self.0.store(SECOND, Ordering::Relaxed);
            return false;
        }
        let reads_first = match answer.status {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => true,
            // Some receivers of version 1.0 refuse the message as malformed.
            StatusCode::BAD_REQUEST => known == TRIED,
            status => status.is_success(),
        };
        if reads_first {
            self.0.store(FIRST, Ordering::Relaxed);
            tracing::info!(
                status = answer.status.as_u16(),
                "the receiver reads remote write 1.0 only; the stream sends 1.0"
            );
        }
        reads_first
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, is_read: bool) -> HttpAnswer {
        let header = (
            HeaderName::from_static(WRITTEN),
            HeaderValue::from_static("0"),
        );
        let headers: HeaderMap = is_read.then_some(header).into_iter().collect();
        HttpAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: [].as_slice().into(),
        }
    }

    #[test]
    fn answers_show_what_a_receiver_reads() {
        for (answers, turned) in [
            (&[(204, true), (400, false), (503, false)][..], None),
            (
                &[(503, false), (401, false), (204, false), (204, false)],
                Some(2),
            ),
            (&[(415, false)], Some(0)),
            (&[(400, false), (400, false)], Some(0)),
            // A receiver of version 1.0 has replaced one that reads 2.0.
            (&[(400, true), (400, false), (204, false)], Some(2)),
        ] {
            let version = RemoteVersion::default();
            let found = answers
                .iter()
                .position(|(status, is_read)| version.has_turned(&answer(*status, *is_read)));
            assert_eq!(
                (found, version.is_second()),
                (turned, turned.is_none()),
                "{answers:?}"
            );
        }
    }
}
