//! Windows as samples: what their documents in OpenMetrics say.

pub mod document;
pub mod parse;
pub mod window;
