//! The connections of clients: their number, their deadlines, and their answers.

pub mod body;
pub mod connection;
pub mod connections;
pub mod counts;
pub mod limits;
pub mod progress;
pub mod request;
pub mod stream;
