//! Credentials, roles, and the record of requests. The guard in `api::router` asks here before any handler runs.

pub mod access;
pub mod audit;
pub mod client_roles;
pub mod hosts;
pub mod lines;
pub mod names;
pub mod options;
pub mod principal;
pub mod refusal;
pub mod role;
#[cfg(test)]
mod tests;
pub mod tokens;
