//! The receivers, a file and a feature for each, and the list of them.

pub mod destination;
pub mod kind;
pub mod list;

#[cfg(feature = "clickhouse")]
pub mod clickhouse;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "ipfix")]
pub mod ipfix;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(feature = "s3")]
pub mod s3;
