//! The record of one request.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use twinprobe_client::ConfigDocument;

use crate::access::audit::line::Line;
use crate::access::audit::log::AuditLog;
use crate::access::audit::out::Room;
use crate::access::audit::repeats::Kind;
use crate::access::principal::Principal;
use crate::access::refusal::Refusal;
use crate::peer::{Origin, Peer};

/// The length in characters to which a path is cut: clients choose it.
const PATH_LIMIT: usize = 512;
/// The same of a request without a credential.
const SHORT_LIMIT: usize = 64;

/// The facts about a request that its handler knows and the guard does not. The handler adds them while it works, so that
/// a refused request has them as well.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Note>>);

#[derive(Clone, Debug, Default)]
struct Note {
    probe: Option<String>,
    /// The SHA-256 of each direction's source, or of its object as it was sent, in base64.
    sources: BTreeMap<&'static str, String>,
}

impl Notes {
    /// Notes the probe and the sources that the request is about.
    pub fn set(&self, probe: &str, config: &ConfigDocument) {
        let digest =
            |source: &String| Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
        let directions = [("ingress", &config.ingress), ("egress", &config.egress)];
        let sources = directions.into_iter().filter_map(|(name, direction)| {
            let direction = direction.as_ref()?;
            Some((name, digest(direction.source.as_ref().or(direction.object.as_ref())?)))
        });
        *self.0.lock() = Note { probe: Some(probe.to_owned()), sources: sources.collect() };
    }
}

/// The record of one request. A record that is dropped before it is ended tells of a client that has gone: what it
/// asked for may have been done.
#[derive(Debug)]
pub struct Record {
    log: Option<Arc<AuditLog>>,
    line: Line,
    /// The client without its port.
    client: String,
    /// True if the request has no credential, or is refused before its handler runs: it shares its line.
    is_shared: bool,
    /// True if the request is to change something.
    is_change: bool,
    pub notes: Notes,
}

impl Record {
    pub fn begin(log: Option<Arc<AuditLog>>, peer: &Peer, request: &Parts, probe: Option<String>) -> Self {
        let (from, client) = match &peer.origin {
            Origin::Unix { uid, gid, pid } => {
                (json!({ "uid": uid, "gid": gid, "pid": pid }), format!("uid:{uid}"))
            }
            Origin::Tcp { client, encrypted, .. } => {
                (json!({ "address": client.to_string(), "tls": encrypted }), network(client.ip()).to_string())
            }
        };
        // The query is left out: it decides about no more than how an answer looks, and where a list begins.
        let path: String = request.uri.path().chars().take(PATH_LIMIT).collect();
        let probe = probe.map(|probe| probe.chars().take(PATH_LIMIT).collect());
        let line = Line { from, ..Line::new(format!("{} {path}", request.method), probe) };
        Self { log, line, client, is_shared: true, is_change: false, notes: Notes::default() }
    }

    /// The record of a change that no request asks for, but a file.
    pub fn of_file(
        log: Option<Arc<AuditLog>>,
        by: &Principal,
        file: &Path,
        what: String,
        probe: &str,
    ) -> Self {
        let line = Line { from: json!({ "file": file }), ..Line::new(what, Some(probe.to_owned())) };
        let notes = Notes::default();
        let mut record = Self { log, line, client: String::new(), is_shared: false, is_change: false, notes };
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

    /// Notes that the request is to change something. With `--audit-required`, writes so before the change is made; after an
    /// error the change must not be made.
    pub fn announce(&mut self) -> io::Result<()> {
        self.is_change = true;
        match &self.log {
            Some(log) if log.is_required() => {
                log.write(&Line { begun: true, ..self.line.clone() }.render(), Room::All)
            }
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
        let Note { probe, sources } = std::mem::take(&mut *self.notes.0.lock());
        let line = &mut self.line;
        line.sources = sources;
        line.probe = line.probe.take().or(probe);
        let outcome = line.outcome;
        if self.is_shared {
            // Whoever has no credential chooses no more than a few bytes of the log.
            line.what = line.what.chars().take(SHORT_LIMIT).collect();
            line.probe = line.probe.take().map(|probe| probe.chars().take(SHORT_LIMIT).collect());
            let (who, reason) = (line.who.clone(), line.reason);
            let kind = Kind { who, from: std::mem::take(&mut self.client), reason, outcome };
            return log.share(kind, line.clone());
        }
        let is_refused = outcome.is_some_and(|status| (400..500).contains(&status));
        let room = if self.is_change && !is_refused { Room::All } else { Room::Rest };
        // The log says why a line can't be written.
        let _ = log.write(&line.render(), room);
    }
}

/// Returns an IPv4 address, or the IPv6 network of 64 bits of an address: hosts have all addresses of theirs.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}
