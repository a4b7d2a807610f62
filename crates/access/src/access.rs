//! The rules of this daemon: the known credentials, and the permitted requests.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap};
use http::uri::Uri;
use parking_lot::RwLock;

use crate::audit::log::AuditLog;
use crate::client_roles::ClientRoles;
use crate::hosts::Hosts;
use crate::lines::{self, LinesError};
use crate::options::AccessOptions;
use crate::peer::{Peer, PeerOrigin};
use crate::principal::{Principal, Who};
use crate::refusal::Refusal;
use crate::role::Role;
use crate::tokens::Tokens;

/// The header that limits the role of a request.
const ROLE: &str = "twinprobe-role";

/// The rules of a running daemon. Each request uses the files in the state of their last reading.
/// [`Self::reload`] replaces the content of a file as a whole.
#[derive(Debug)]
pub struct Access {
    tokens: Option<PathBuf>,
    client_roles: Option<PathBuf>,
    known_tokens: RwLock<Arc<Tokens>>,
    known_roles: RwLock<Arc<ClientRoles>>,
    socket_role: Role,
    /// True if clients over TCP need no credential.
    open_tcp: bool,
    hosts: Hosts,
    audit: Option<Arc<AuditLog>>,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    File(#[from] LinesError),
    #[error("--audit-log {path} can't be opened")]
    Audit {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Access {
    /// Reads the files. `open_tcp` says that clients over TCP need no credential.
    pub fn open(options: AccessOptions, open_tcp: bool) -> Result<Self, AccessError> {
        let AccessOptions {
            tokens,
            client_roles,
            socket_role,
            hosts,
            audit_log,
            audit_required,
            ..
        } = options;
        let known_tokens = tokens
            .as_deref()
            .map(|path| lines::read(path, Tokens::parse))
            .transpose()?;
        let known_roles = client_roles
            .as_deref()
            .map(|path| lines::read(path, ClientRoles::parse))
            .transpose()?;
        let audit = audit_log.map(|path| {
            AuditLog::open(&path, audit_required)
                .map_err(|source| AccessError::Audit { path, source })
        });
        Ok(Self {
            tokens,
            client_roles,
            known_tokens: RwLock::new(Arc::new(known_tokens.unwrap_or_default())),
            known_roles: RwLock::new(Arc::new(known_roles.unwrap_or_default())),
            socket_role,
            open_tcp,
            hosts: Hosts::new(&hosts),
            audit: audit.transpose()?,
        })
    }

    /// Reads the files again and opens the audit log anew. A file with a mistake changes nothing
    /// and is reported.
    pub fn reload(&self) {
        let tokens = self.tokens.as_deref().map(|path| {
            *self.known_tokens.write() = Arc::new(lines::read(path, Tokens::parse)?);
            Ok::<_, LinesError>(())
        });
        let roles = self.client_roles.as_deref().map(|path| {
            *self.known_roles.write() = Arc::new(lines::read(path, ClientRoles::parse)?);
            Ok(())
        });
        for failed in [tokens, roles]
            .into_iter()
            .flatten()
            .filter_map(Result::err)
        {
            let error = twinprobe_ebpf_common::finding::with_causes(&failed);
            tracing::error!(
                error,
                "the file has mistakes; its earlier content stays in use"
            );
        }
        if let Some(log) = &self.audit
            && let Err(error) = log.reopen()
        {
            let path = log.path().display();
            tracing::error!(%path, %error, "the audit log can't be opened again; it continues in the old file");
        }
        tracing::info!("tokens, roles and the audit log were read again");
    }

    pub fn audit(&self) -> Option<Arc<AuditLog>> {
        self.audit.clone()
    }

    /// Writes the counts that the audit log still holds, because the daemon ends.
    pub fn end(&self) {
        self.audit.iter().for_each(|log| log.end_interval());
    }

    /// Refuses requests that another server's page could have sent. Browsers can't reach Unix
    /// sockets.
    pub fn check_target(&self, peer: &Peer, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        match peer.origin {
            PeerOrigin::Unix { .. } => Ok(()),
            PeerOrigin::Tcp { local, .. } => self.hosts.check(local, uri, headers),
        }
    }

    /// Returns the sender of a request, with at most the role in `Twinprobe-Role`: with this
    /// header, a program that acts for others limits itself to their rights.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Principal, Refusal> {
        let most = headers.get_all(ROLE).iter().map(|value| {
            let role = value.to_str().ok().and_then(Role::from_name);
            role.ok_or_else(|| {
                Refusal::NoRole(String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
        });
        let most = most.collect::<Result<Vec<_>, _>>()?.into_iter().min();
        let Principal { who, role } = self.owner(peer, headers)?;
        Ok(Principal {
            who,
            role: role.map(|role| most.map_or(role, |most| most.min(role))),
        })
    }

    /// Returns the sender of a request: the owner of the token; without a token, the owner of the
    /// certificate; without both, the user at the other end of the socket. An invalid token is
    /// refused even where no token is needed.
    fn owner(&self, peer: &Peer, headers: &HeaderMap) -> Result<Principal, Refusal> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        if let Some(first) = given.next() {
            let token = first
                .to_str()
                .ok()
                .filter(|_| given.next().is_none())
                .and_then(bearer);
            let tokens = Arc::clone(&self.known_tokens.read());
            return token
                .and_then(|token| tokens.owner(token))
                .ok_or(Refusal::WrongToken);
        }
        let roles = Arc::clone(&self.known_roles.read());
        if let Some(owner) = roles.owner(&peer.names) {
            return Ok(owner);
        }
        match peer.origin {
            PeerOrigin::Unix { uid, .. } => Ok(Principal {
                who: Who::User(uid),
                role: Some(self.socket_role),
            }),
            PeerOrigin::Tcp { .. } if self.open_tcp => Ok(Principal {
                who: Who::Anonymous,
                role: Some(Role::Admin),
            }),
            PeerOrigin::Tcp { .. } => Err(Refusal::NoCredential),
        }
    }
}

/// Returns the token of `Bearer TOKEN`.
pub fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
