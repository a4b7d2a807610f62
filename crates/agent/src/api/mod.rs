//! The REST API.

pub mod console;
pub mod daemon;
pub mod documents;
pub mod entries;
pub mod error;
pub mod extract;
pub mod names;
pub mod nodes;
pub mod pods;
pub mod probes;
pub mod replay;
pub mod router;
pub mod routes;
pub mod rules;
pub mod state;
pub mod streams;
pub mod windows;
