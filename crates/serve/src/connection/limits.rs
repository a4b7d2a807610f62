//! The limits of connections.

use std::time::Duration;

/// The limits of all connections together, and of each.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ConnectionLimits {
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Connections at a time of one client; a client is an address (an IPv6 network of 64 bits) or
    /// a user of this host
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections_per_client: u32,
    /// Time for the TLS handshake and the head of a request
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub header_timeout: Duration,
    /// Time for the body of a request
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub body_timeout: Duration,
    /// Time that an answer waits for a client that reads nothing; over longer times a client must
    /// read 2 KiB per second
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub write_timeout: Duration,
    /// Time that a connection may be idle between two requests
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub idle_timeout: Duration,
}

/// The share of places that clients of `--listen-metrics` have, beside all others.
const SCRAPERS: u32 = 8;

impl ConnectionLimits {
    /// Returns the limits of clients that need no credential. They have separate places, so that
    /// they take none of clients with a credential.
    pub fn of_scrapers(self) -> Self {
        let share = |places: u32| (places / SCRAPERS).max(1);
        let (all, each) = (
            share(self.max_connections),
            share(self.max_connections_per_client),
        );
        Self {
            max_connections: all,
            max_connections_per_client: each,
            ..self
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("not a number of seconds from 1 to 86400".into()),
    }
}
