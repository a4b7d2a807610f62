//! The overview of the fleet for people: a page of the console, and the document that it shows.

mod listing;
mod metrics;
pub mod serve;
