//! The number of each request. It connects the answer with lines in the log and in the client's own
//! log.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The largest length of an id that a client chooses.
const LONGEST: usize = 64;

/// The number of a request, in the extensions of the request. Letters, digits, `-`, `_` and `.`
/// only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub HeaderValue);

impl RequestId {
    /// Returns the client's own id, or else a unique one.
    pub fn of(headers: &HeaderMap) -> Self {
        match headers.get(X_REQUEST_ID) {
            Some(chosen) if is_plain(chosen.as_bytes()) => Self(chosen.clone()),
            _ => Self::next(),
        }
    }

    /// Returns a number that is unique among the requests of all daemons.
    pub fn next() -> Self {
        /// Hash keys that differ in each process.
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = format!(
            "{:016x}",
            KEYS.hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
        );
        Self(HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("0")))
    }

    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

fn is_plain(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_chooses_plain_numbers_only() {
        let of = |id: &str| {
            let headers =
                HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::try_from(id).unwrap())]);
            RequestId::of(&headers).as_str().to_owned()
        };
        assert_eq!(of("a-B_3.z"), "a-B_3.z");
        for bad in ["", "a b", "a\"b", "{x}", &"a".repeat(65)] {
            assert_eq!(of(bad).len(), 16, "{bad}");
        }
        assert_ne!(RequestId::next(), RequestId::next());
    }
}
