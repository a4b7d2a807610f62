//! The REST API.

pub mod daemon;
pub mod error;
pub mod events;
pub mod export;
pub mod extract;
pub mod negotiate;
pub mod probes;
pub mod replay;
pub mod router;
pub mod routes;
pub mod scrape;
pub mod state;
pub mod windows;
