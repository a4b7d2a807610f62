//! The kinds of receivers in this build. Each kind has a file, or a folder, and a feature of its
//! own.

pub mod destination;
pub mod kind;

#[cfg(feature = "clickhouse")]
mod clickhouse;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "ipfix")]
mod ipfix;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "prometheus")]
mod prometheus;
#[cfg(feature = "s3")]
mod s3;

use self::kind::ReceiverKind;

/// The kinds of receivers, by their names in configurations.
pub const KINDS: &[ReceiverKind] = &[
    #[cfg(feature = "clickhouse")]
    ReceiverKind::of::<clickhouse::options::ClickhouseOptions>(),
    #[cfg(feature = "file")]
    ReceiverKind::of::<file::FileOptions>(),
    #[cfg(feature = "ipfix")]
    ReceiverKind::of::<ipfix::options::IpfixOptions>(),
    #[cfg(feature = "kafka")]
    ReceiverKind::of::<kafka::options::KafkaOptions>(),
    #[cfg(feature = "nats")]
    ReceiverKind::of::<nats::options::NatsOptions>(),
    #[cfg(feature = "otlp")]
    ReceiverKind::of::<otlp::options::OtlpOptions>(),
    #[cfg(feature = "postgres")]
    ReceiverKind::of::<postgres::options::PostgresOptions>(),
    #[cfg(feature = "prometheus")]
    ReceiverKind::of::<prometheus::options::PrometheusOptions>(),
    #[cfg(feature = "s3")]
    ReceiverKind::of::<s3::S3Options>(),
];
