//! Windows as samples: what their documents in OpenMetrics say.

// Which of these a build needs depends on its receivers.
#![allow(dead_code, reason = "remote write needs no label by its name")]

pub mod document;
pub mod parse;
pub mod window;
