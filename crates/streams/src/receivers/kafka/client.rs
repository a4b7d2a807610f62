//! Clients of Kafka: their settings, and the reasons for failures.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};

use super::options::{KafkaCompression, KafkaOptions, SaslMechanism};
use crate::receiver::SendError;

/// The time for which the stream polls a client for errors of its connections. They share a queue
/// with other events.
pub const SETTLE: Duration = Duration::from_millis(20);

/// The errors of a client that arrive apart from its answers.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<ToldState>>);

#[derive(Debug, Default)]
struct ToldState {
    /// The last error of a connection.
    reason: Option<String>,
    /// The reason why the first undelivered message was not delivered.
    undelivered: Option<String>,
}

impl Told {
    /// Returns the reason why a message was not delivered, if there is one, and forgets it.
    pub fn take_undelivered(&self) -> Option<String> {
        self.0.lock().undelivered.take()
    }

    /// Makes an error, which includes the errors of connections since the last one.
    pub fn failed(&self, what: &str, error: &KafkaError) -> SendError {
        let told = match error {
            // The message of this error shows the value of a setting, which may be a password.
            KafkaError::ClientConfig(_, told, name, _) => {
                SendError::new(format!("{what}: {told} of {name}"))
            }
            error => SendError::caused(what, error),
        };
        match &self.0.lock().reason {
            Some(reason) => SendError::new(format!("{told} ({reason})")),
            None => told,
        }
    }
}

impl ClientContext for Told {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        tracing::debug!(?level, fac, message, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
        // This error comes after the reason why the brokers can't be reached, and must not replace
        // that reason.
        if !matches!(error, KafkaError::Global(RDKafkaErrorCode::AllBrokersDown)) {
            self.0.lock().reason = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Told {
    type DeliveryOpaque = ();

    fn delivery(&self, delivered: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = delivered {
            self.0
                .lock()
                .undelivered
                .get_or_insert_with(|| error.to_string());
        }
    }
}

impl ConsumerContext for Told {}

/// Returns the settings that all clients share. Files with secrets and certificates are read again
/// each time.
pub fn settings(options: &KafkaOptions) -> Result<ClientConfig, SendError> {
    let mut config = ClientConfig::new();
    let sasl = options.user.is_some();
    let protocol = match (options.is_encrypted(), sasl) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config
        .set("bootstrap.servers", options.brokers.join(","))
        .set("client.id", "twinprobe-stream")
        .set("security.protocol", protocol)
        .set("message.max.bytes", options.max_message_bytes.to_string())
        .set("allow.auto.create.topics", "false")
        .set("reconnect.backoff.max.ms", "1000");
    for (setting, file) in [
        ("ssl.ca.location", &options.ca),
        ("ssl.certificate.location", &options.cert),
        ("ssl.key.location", &options.key),
    ] {
        if let Some(path) = file {
            read(path)?;
            config.set(setting, path.display().to_string());
        }
    }
    if let (Some(user), Some(path)) = (&options.user, &options.password_file) {
        let mechanism = match options.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        let password = read(path)?;
        config
            .set("sasl.mechanism", mechanism)
            .set("sasl.username", user)
            .set("sasl.password", password.trim_end_matches(['\r', '\n']));
    }
    Ok(config)
}

/// Returns the settings of a producer. `id` is its id for transactions; `None` for a producer
/// without transactions.
pub fn producer(options: &KafkaOptions, id: Option<&str>) -> Result<ClientConfig, SendError> {
    let mut config = settings(options)?;
    let compression = match options.compression {
        KafkaCompression::None => "none",
        KafkaCompression::Gzip => "gzip",
        KafkaCompression::Lz4 => "lz4",
        KafkaCompression::Snappy => "snappy",
    };
    config
        .set("enable.idempotence", "true")
        .set("linger.ms", "1")
        .set("compression.type", compression)
        // The setting for the choice of a partition by its key, which is the choice of Kafka's own
        // clients.
        .set("partitioner", "murmur2_random")
        // Producers request the end of the topic of cursors, including uncommitted messages.
        .set("isolation.level", "read_uncommitted");
    if let Some(id) = id {
        config.set("transactional.id", id);
    }
    Ok(config)
}

fn read(path: &Path) -> Result<String, SendError> {
    fs::read_to_string(path).map_err(|error| SendError::caused(&path.display().to_string(), &error))
}
