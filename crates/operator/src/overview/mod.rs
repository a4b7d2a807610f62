//! The overview of the fleet for people: a page of the console, and its document.

mod listing;
mod metrics;
pub mod serve;
