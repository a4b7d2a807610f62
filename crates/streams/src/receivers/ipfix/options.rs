//! The receiver: a collector that speaks IPFIX.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::time::Instant;
use twinprobe_ebpf_common::ipfix::element::IpfixElement;

use super::element::EXAMPLE_ENTERPRISE;
use super::message::LONGEST_MESSAGE;
use super::session::SessionSettings;
use super::transport::{CollectorLink, CollectorRoute};
use super::window::WindowEncoder;
use crate::config::duration;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, StreamItem, StreamWindow,
};
use crate::receivers::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};
use crate::tls::ReceiverTls;

const PORT: u16 = 4739;
const TLS_PORT: u16 = 4740;
/// The least size of a datagram, which every path supports (RFC 7011, section 10.3.3).
const LEAST_MTU: usize = 576;
const LINGER: Duration = Duration::from_secs(1);

/// The transport of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IpfixTransport {
    #[default]
    Tcp,
    Tls,
    Udp,
}

/// Options of a collector.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct IpfixOptions {
    /// The address of the collector: HOST or HOST:PORT.
    collector: String,
    #[serde(default)]
    transport: IpfixTransport,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    /// The enterprise number of our elements.
    #[serde(default = "example_enterprise")]
    enterprise: u32,
    /// The number of the observation domain.
    #[serde(default)]
    domain: u32,
    /// The size of a datagram over UDP in octets, including headers.
    #[serde(default = "ethernet")]
    mtu: usize,
    /// The time after which templates are sent again over UDP.
    #[serde(default = "minute", deserialize_with = "duration::read")]
    templates: Duration,
    /// Over TCP and TLS, whether a batch counts as sent once the collector has closed its
    /// connection.
    #[serde(default = "yes")]
    confirm: bool,
    /// Names of fields, each with the name of the IANA element that it means.
    #[serde(default)]
    elements: BTreeMap<String, String>,
}

const fn example_enterprise() -> u32 {
    EXAMPLE_ENTERPRISE
}

const fn ethernet() -> usize {
    1500
}

const fn minute() -> Duration {
    Duration::from_secs(60)
}

const fn yes() -> bool {
    true
}

impl ReceiverOptions for IpfixOptions {
    const NAME: &'static str = "ipfix";
    const SCHEMES: &'static [&'static str] = &["ipfix", "ipfix+udp", "ipfix+tls"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        if !url.path.is_empty() {
            return Err(format!(
                "{}://HOST:PORT is expected, without a path",
                url.scheme
            ));
        }
        let transport = match url.scheme.as_str() {
            "ipfix+udp" => IpfixTransport::Udp,
            "ipfix+tls" => IpfixTransport::Tls,
            _ => IpfixTransport::Tcp,
        };
        let value = serde_json::json!({ "collector": url.authority });
        let options: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        Ok(Self {
            transport,
            ..options
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let (host, port) = split(&self.collector);
        if host.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            let collector = &self.collector;
            return Err((
                "collector",
                format!(
                    "{collector:?} is not an address; write HOST or HOST:PORT, as in collector:4739"
                ),
            ));
        }
        if self.enterprise == 0 {
            return Err((
                "enterprise",
                "0 is IANA itself; write the private enterprise number of your site".to_owned(),
            ));
        }
        if !(LEAST_MTU..=LONGEST_MESSAGE).contains(&self.mtu) {
            return Err((
                "mtu",
                format!("{} is not from {LEAST_MTU} to {LONGEST_MESSAGE}", self.mtu),
            ));
        }
        let tls = [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)];
        for (field, file) in tls {
            if file.is_some() && self.transport != IpfixTransport::Tls {
                return Err((field, "certificates need transport: tls".to_owned()));
            }
        }
        if self.key.is_some() && self.cert.is_none() {
            return Err((
                "key",
                "a private key needs its certificate: name it as cert".to_owned(),
            ));
        }
        match self
            .elements
            .iter()
            .find(|(_, element)| IpfixElement::named(element).is_none())
        {
            Some((field, element)) => {
                let nearest = IpfixElement::nearest(element);
                Err((
                    "elements",
                    format!("{field}: {element} is not an element; the nearest are {nearest}"),
                ))
            }
            None => Ok(()),
        }
    }

    fn target(&self) -> String {
        let scheme = match self.transport {
            IpfixTransport::Tcp => "ipfix",
            IpfixTransport::Tls => "ipfix+tls",
            IpfixTransport::Udp => "ipfix+udp",
        };
        format!("{scheme}://{}", self.address())
    }

    fn identity(&self) -> String {
        format!("{} {}", self.target(), self.domain)
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let target = self.target();
        let is_confirmed = self.confirm && self.transport != IpfixTransport::Udp;
        let linger = if is_confirmed {
            LINGER
        } else {
            BatchLimits::default().linger
        };
        let linger = if setup.once {
            duration::SOON.min(linger)
        } else {
            linger
        };
        let limits = BatchLimits {
            items: 4096,
            bytes: setup.memory / 8,
            linger,
        };
        Box::new(IpfixReceiver {
            collector: self.address(),
            options: self,
            target,
            limits,
            is_confirmed,
            open: None,
        })
    }
}

impl IpfixOptions {
    /// HOST:PORT.
    fn address(&self) -> String {
        let port = if self.transport == IpfixTransport::Tls {
            TLS_PORT
        } else {
            PORT
        };
        match split(&self.collector) {
            (_, Some(_)) => self.collector.clone(),
            (host, None) => format!("{host}:{port}"),
        }
    }

    fn route(&self) -> CollectorRoute {
        match self.transport {
            IpfixTransport::Tcp => CollectorRoute::Tcp,
            IpfixTransport::Udp => CollectorRoute::Udp { mtu: self.mtu },
            IpfixTransport::Tls => CollectorRoute::Tls(ReceiverTls {
                ca: self.ca.clone(),
                cert: self.cert.clone(),
                key: self.key.clone(),
            }),
        }
    }
}

/// Returns the host and the port of `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn split(collector: &str) -> (&str, Option<&str>) {
    match collector.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (collector, None),
    }
}

/// A receiver for one collector, with the open session.
struct IpfixReceiver {
    options: IpfixOptions,
    collector: String,
    target: String,
    limits: BatchLimits,
    is_confirmed: bool,
    open: Option<OpenSession>,
}

/// A connection, and the templates that its collector knows.
struct OpenSession {
    link: CollectorLink,
    encoder: WindowEncoder,
    /// The time at which all templates were sent the last time.
    told: Instant,
}

impl IpfixReceiver {
    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<(), SendError> {
        let mut session = match self.open.take() {
            Some(session) if !session.link.is_closed() => session,
            _ => self.begin().await?,
        };
        let is_udp = matches!(session.link, CollectorLink::Udp { .. });
        if is_udp && session.told.elapsed() >= self.options.templates {
            session.encoder.repeat_templates();
            session.told = Instant::now();
        }
        for item in batch {
            let omitted = session.encoder.add(item)?;
            if omitted > 0 {
                let (window, target) = (item.identity(), &self.target);
                tracing::warn!(
                    window,
                    omitted,
                    receiver = target,
                    "fields are too long for a message; they are left out"
                );
            }
            let messages = session.encoder.take();
            let sent = session.link.send(&messages).await;
            sent.map_err(|error| SendError::caused(&self.collector, &error))?;
        }
        if self.is_confirmed {
            return session.link.finish().await;
        }
        self.open = Some(session);
        Ok(())
    }

    async fn begin(&self) -> Result<OpenSession, SendError> {
        let link = CollectorLink::open(&self.collector, &self.options.route()).await?;
        let limit = if let CollectorLink::Udp { limit, .. } = &link {
            *limit
        } else {
            LONGEST_MESSAGE
        };
        Ok(OpenSession {
            link,
            encoder: self.encoder(limit),
            told: Instant::now(),
        })
    }

    /// Makes an encoder of messages with at most `limit` octets.
    fn encoder(&self, limit: usize) -> WindowEncoder {
        let settings = SessionSettings {
            enterprise: self.options.enterprise,
            domain: self.options.domain,
            limit,
        };
        WindowEncoder::new(settings, self.options.elements.clone())
    }
}

impl Receiver for IpfixReceiver {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn send<'a>(
        &'a mut self,
        batch: &'a [Arc<StreamItem>],
    ) -> BoxFuture<'a, Result<Receipt, SendError>> {
        async move {
            // After an error the session has ended. The next session begins with its templates.
            self.store(batch).await?;
            Ok(Receipt::all(batch, &ItemFate::Stored))
        }
        .boxed()
    }

    fn preview(&self, item: &ItemName) -> String {
        format!(
            "{item} -> {}, observation domain {}",
            self.target, self.options.domain
        )
    }

    fn content(&self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        self.encoder(LONGEST_MESSAGE).shown(window, most)
    }
}

#[cfg(test)]
mod tests;
