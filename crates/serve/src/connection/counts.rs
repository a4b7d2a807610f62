//! The counters of connections.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The counters of connections; clones count together.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCounts {
    pub open: Gauge,
    cut: Family<Reason, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// The reason why the daemon has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// There was no room for the connection.
    Refused,
    /// The connection waited for a request and made room for another.
    Evicted,
    Handshake,
    Head,
    Idle,
    Write,
}

impl ConnectionCounts {
    pub fn new(registry: &mut Registry) -> Self {
        let counts = Self::default();
        registry.register(
            "twinprobe_http_connections",
            "Connections that are open",
            counts.open.clone(),
        );
        registry.register(
            "twinprobe_http_connections_cut",
            "Connections that the daemon has ended before their clients did",
            counts.cut.clone(),
        );
        counts
    }

    /// Counts a connection that the daemon has ended.
    pub fn cut(&self, cut: Cut) {
        let reason = match cut {
            Cut::Refused => "refused",
            Cut::Evicted => "evicted",
            Cut::Handshake => "handshake",
            Cut::Head => "head_timeout",
            Cut::Idle => "idle_timeout",
            Cut::Write => "write_timeout",
        };
        self.cut.get_or_create(&Reason { reason }).inc();
    }
}
