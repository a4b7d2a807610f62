//! Time as documents and status show it.

use jiff::Timestamp;

/// Formats a time as RFC 3339 with nanoseconds, in UTC.
pub fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
}
