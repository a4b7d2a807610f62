//! The options of Kafka.

use std::path::PathBuf;

use serde::Deserialize;

use crate::config::tls_mode::{TlsMode, is_here};

/// The longest name of a topic.
const LONGEST: usize = 249;

/// The compression of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KafkaCompression {
    #[default]
    None,
    Gzip,
    Lz4,
    Snappy,
}

/// The mechanism by which the stream authenticates itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum SaslMechanism {
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

/// Options of a topic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct KafkaOptions {
    /// The addresses of some brokers of the cluster: HOST:PORT.
    pub brokers: Vec<String>,
    pub topic: String,
    /// The topic of cursors; by default `TOPIC.cursors`.
    pub cursor_topic: Option<String>,
    /// True if the stream makes missing topics.
    #[serde(default = "yes")]
    pub create: bool,
    /// True if the stream writes windows and cursors in transactions.
    #[serde(default = "yes")]
    pub exactly_once: bool,
    #[serde(default)]
    pub compression: KafkaCompression,
    /// The most bytes of a message, before compression.
    #[serde(default = "largest")]
    pub max_message_bytes: usize,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    #[serde(default)]
    pub mechanism: SaslMechanism,
    /// The mode of TLS. The default is `require`, except for brokers on this machine.
    pub tls: Option<TlsMode>,
    /// The certificates of the authorities that have signed the brokers' certificates (PEM).
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

const fn yes() -> bool {
    true
}

/// Returns the largest size of messages that brokers accept by default.
const fn largest() -> usize {
    1_000_000
}

impl KafkaOptions {
    /// Returns the name of the topic of cursors.
    pub fn cursors(&self) -> String {
        self.cursor_topic
            .clone()
            .unwrap_or_else(|| format!("{}.cursors", self.topic))
    }

    /// Tells whether connections are encrypted, which is the default over a network.
    pub fn is_encrypted(&self) -> bool {
        let host = |broker: &String| {
            broker
                .rsplit_once(':')
                .map_or(broker.clone(), |(host, _)| host.to_owned())
        };
        let by_default = || self.brokers.iter().any(|broker| !is_here(&host(broker)));
        self.tls
            .map_or_else(by_default, |tls| tls == TlsMode::Require)
    }

    /// Checks the rules that types do not express.
    pub fn checked(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        if self.brokers.is_empty() {
            return wrong(
                "brokers",
                "at least one broker is needed, as in kafka-1.example:9093",
            );
        }
        for broker in &self.brokers {
            if broker.contains('@') {
                return wrong(
                    "brokers",
                    "a broker has no user and no password: write `user` and `passwordFile`",
                );
            }
            let port = broker
                .rsplit_once(':')
                .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
            let is_place = port.is_some_and(|(host, port)| port != 0 && !host.is_empty());
            if !is_place
                || broker
                    .contains(|c: char| c.is_whitespace() || c.is_control() || ",/".contains(c))
            {
                return Err(("brokers", format!("{broker:?} is not HOST:PORT")));
            }
        }
        for (field, name) in [("topic", &self.topic), ("cursorTopic", &self.cursors())] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if name.is_empty()
                || name.len() > LONGEST
                || !name.chars().all(is_plain)
                || [".", ".."].contains(&&**name)
            {
                return Err((
                    field,
                    format!("1 to {LONGEST} letters, digits, and any of . _ - are expected"),
                ));
            }
        }
        if self.cursors() == self.topic {
            return wrong("cursorTopic", "cursors need a topic of their own");
        }
        if !(1_000..=1_000_000_000).contains(&self.max_message_bytes) {
            return wrong("maxMessageBytes", "1,000 to 1,000,000,000 are expected");
        }
        self.check_identity()
    }

    fn check_identity(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        match (&self.user, &self.password_file, &self.cert, &self.key) {
            (Some(_), None, ..) => return wrong("user", "a user needs `passwordFile`"),
            (None, Some(_), ..) => return wrong("passwordFile", "a password needs `user`"),
            (_, _, None, Some(_)) => return wrong("key", "a key needs `cert`"),
            (_, _, Some(_), None) => return wrong("cert", "a certificate needs `key`"),
            _ => {}
        }
        for (field, file) in [("ca", &self.ca), ("cert", &self.cert)] {
            if file.is_some() && !self.is_encrypted() {
                return wrong(field, "certificates need TLS: write `tls: require`");
            }
        }
        Ok(())
    }
}
