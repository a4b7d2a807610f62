//! The record of one request.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use twinprobe_api::ConfigDocument;

use crate::audit::line::Line;
use crate::audit::log::AuditLog;
use crate::audit::out::LineRoom;
use crate::audit::repeats::RepeatKind;
use crate::peer::{Peer, PeerOrigin};
use crate::principal::Principal;
use crate::refusal::Refusal;

/// The length in characters to which a path is cut: clients choose it.
const PATH_LIMIT: usize = 512;
/// The length for a request without a credential.
const SHORT_LIMIT: usize = 64;

/// The facts about a request that only its handler knows, not the guard. The handler adds them
/// while it works, so that a refused request has them as well.
#[derive(Clone, Debug, Default)]
pub struct RecordNotes(Arc<Mutex<ConfigNote>>);

#[derive(Clone, Debug, Default)]
struct ConfigNote {
    probe: Option<String>,
    /// The SHA-256 of each direction's source, or of its object as the client has sent it, in
    /// base64. For a source with files, it also covers their names and texts.
    sources: BTreeMap<&'static str, String>,
    /// The sender's reason for a change.
    message: Option<String>,
}

impl RecordNotes {
    /// Notes the sender's reason for a change.
    pub fn explain(&self, message: &str) {
        self.0.lock().message = Some(message.to_owned());
    }

    /// Notes the probe and the sources that the request is about.
    pub fn set(&self, probe: &str, config: &ConfigDocument) {
        let directions = [("ingress", &config.ingress), ("egress", &config.egress)];
        let sources = directions.into_iter().filter_map(|(name, direction)| {
            let direction = direction.as_ref()?;
            let mut digest =
                Sha256::new_with_prefix(direction.source.as_ref().or(direction.object.as_ref())?);
            for text in direction
                .files
                .iter()
                .flatten()
                .flat_map(|(name, text)| [name, text])
            {
                // The lengths before the texts keep these distinct.
                digest.update((text.len() as u64).to_be_bytes());
                digest.update(text);
            }
            Some((
                name,
                digest
                    .finalize()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            ))
        });
        let mut note = self.0.lock();
        (note.probe, note.sources) = (Some(probe.to_owned()), sources.collect());
    }
}

/// The record of one request. If a record is dropped before its end, the client has hung up. The
/// request may have taken effect.
#[derive(Debug)]
pub struct Record {
    log: Option<Arc<AuditLog>>,
    line: Line,
    /// The client without its port.
    client: String,
    /// True if the request has no credential, or is refused before its handler runs: then it shares
    /// a line.
    is_shared: bool,
    /// True if the request changes something.
    is_change: bool,
    pub notes: RecordNotes,
}

impl Record {
    pub fn begin(
        log: Option<Arc<AuditLog>>,
        peer: &Peer,
        request: &Parts,
        probe: Option<String>,
    ) -> Self {
        let (from, client) = match &peer.origin {
            PeerOrigin::Unix { uid, .. } => (peer.origin.shown(), format!("uid:{uid}")),
            PeerOrigin::Tcp { client, .. } => {
                (peer.origin.shown(), network(client.ip()).to_string())
            }
        };
        // The query is left out: it decides only how an answer looks and where a list begins. The
        // reason for a change is among the notes.
        let path: String = request.uri.path().chars().take(PATH_LIMIT).collect();
        let probe = probe.map(|probe| probe.chars().take(PATH_LIMIT).collect());
        let line = Line {
            from,
            ..Line::new(format!("{} {path}", request.method), probe)
        };
        Self {
            log,
            line,
            client,
            is_shared: true,
            is_change: false,
            notes: RecordNotes::default(),
        }
    }

    /// The record of a change without a request: a file or a rule, which `from` names, has caused
    /// it.
    pub fn of_own(
        log: Option<Arc<AuditLog>>,
        by: &Principal,
        from: Value,
        what: String,
        probe: &str,
    ) -> Self {
        let line = Line {
            from,
            ..Line::new(what, Some(probe.to_owned()))
        };
        let notes = RecordNotes::default();
        let mut record = Self {
            log,
            line,
            client: String::new(),
            is_shared: false,
            is_change: false,
            notes,
        };
        record.set_principal(by);
        record
    }

    pub fn set_principal(&mut self, principal: &Principal) {
        self.line.who = Some(principal.who.to_string());
        self.line.role = principal.role.map(|role| role.name());
        self.is_shared = false;
    }

    /// Notes that the request does not reach its handler.
    pub fn refuse(&mut self, refusal: &Refusal) {
        self.line.reason = Some(refusal.reason());
        self.is_shared = true;
    }

    /// Notes that the request changes something. With `--audit-required`, writes so before the
    /// change is made; after an error the change must not be made.
    pub fn announce(&mut self) -> io::Result<()> {
        self.is_change = true;
        match &self.log {
            Some(log) if log.is_required() => log.write(
                &Line {
                    begun: true,
                    ..self.line.clone()
                }
                .render(),
                LineRoom::All,
            ),
            _ => Ok(()),
        }
    }

    pub fn end(mut self, status: StatusCode) {
        self.line.outcome = Some(status.as_u16());
    }

    /// Writes nothing of the request.
    pub fn forget(mut self) {
        self.log = None;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(log) = self.log.take() else { return };
        let ConfigNote {
            probe,
            sources,
            message,
        } = std::mem::take(&mut *self.notes.0.lock());
        let line = &mut self.line;
        (line.sources, line.message) = (sources, message);
        line.probe = line.probe.take().or(probe);
        let outcome = line.outcome;
        if self.is_shared {
            // A client without a credential chooses only a few bytes of the log.
            line.what = line.what.chars().take(SHORT_LIMIT).collect();
            line.probe = line
                .probe
                .take()
                .map(|probe| probe.chars().take(SHORT_LIMIT).collect());
            let (who, reason) = (line.who.clone(), line.reason);
            let kind = RepeatKind {
                who,
                from: std::mem::take(&mut self.client),
                reason,
                outcome,
            };
            return log.share(kind, line.clone());
        }
        let is_refused = outcome.is_some_and(|status| (400..500).contains(&status));
        let room = if self.is_change && !is_refused {
            LineRoom::All
        } else {
            LineRoom::Rest
        };
        // The log says why a line can't be written.
        let _ = log.write(&line.render(), room);
    }
}

/// Returns an IPv4 address unchanged, and the network of 64 bits of an IPv6 address, because a host
/// may use any address of its network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}
