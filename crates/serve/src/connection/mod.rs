//! The connections of clients: how many there may be, how long each may take, and what it gets.

pub mod body;
pub mod connection;
pub mod connections;
pub mod counts;
pub mod limits;
pub mod progress;
pub mod request;
pub mod stream;
