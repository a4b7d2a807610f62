//! The protobuf format of Prometheus, made of OpenMetrics: each family is a message with its length
//! before it.

pub mod delimited;
pub mod line;
pub mod message;
pub mod native;
