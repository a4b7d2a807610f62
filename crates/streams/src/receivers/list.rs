//! The kinds of receivers that this build has. A new one is a line here and a file beside.

use super::kind::ReceiverKind;

/// The kinds, by their names in configurations.
pub const KINDS: &[ReceiverKind] = &[
    #[cfg(feature = "clickhouse")]
    ReceiverKind::of::<super::clickhouse::options::ClickhouseOptions>(),
    #[cfg(feature = "file")]
    ReceiverKind::of::<super::file::FileOptions>(),
    #[cfg(feature = "ipfix")]
    ReceiverKind::of::<super::ipfix::options::IpfixOptions>(),
    #[cfg(feature = "kafka")]
    ReceiverKind::of::<super::kafka::options::KafkaOptions>(),
    #[cfg(feature = "nats")]
    ReceiverKind::of::<super::nats::options::NatsOptions>(),
    #[cfg(feature = "otlp")]
    ReceiverKind::of::<super::otlp::options::OtlpOptions>(),
    #[cfg(feature = "postgres")]
    ReceiverKind::of::<super::postgres::options::PostgresOptions>(),
    #[cfg(feature = "prometheus")]
    ReceiverKind::of::<super::prometheus::options::PrometheusOptions>(),
    #[cfg(feature = "s3")]
    ReceiverKind::of::<super::s3::S3Options>(),
];
