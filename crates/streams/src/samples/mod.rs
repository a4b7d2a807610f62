//! Windows as samples, from their documents in OpenMetrics.

// The receivers of a build decide which of these modules it needs.
#![allow(dead_code, reason = "remote write needs no label by its name")]

pub mod document;
pub mod parse;
pub mod window;
