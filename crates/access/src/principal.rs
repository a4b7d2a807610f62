//! The sender of a request, as far as the credential tells.

use std::fmt;

use crate::refusal::Refusal;
use crate::role::Role;

/// The sender of a request and the sender's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub who: Who,
    /// `None` for a certificate that no line of `--client-roles` names.
    pub role: Option<Role>,
}

/// The name by which a credential is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The name of a token.
    Token(String),
    /// A subject alternative name of a client's certificate.
    Certificate(String),
    /// The user at the other end of a Unix socket.
    User(u32),
    /// The name of a file in the directory of `--probes`.
    File(String),
    /// A rule of this daemon.
    Rule(String),
    /// A client of a daemon that asks for no credential, because of `--insecure`.
    Anonymous,
}

impl Principal {
    /// Refuses a principal that does not have the role `needed`.
    pub fn need(&self, needed: Role) -> Result<(), Refusal> {
        if self.role >= Some(needed) { Ok(()) } else { Err(Refusal::Role { has: self.role, needed }) }
    }
}

/// The kind of the credential is part of the name: a token called `uid:0` is not the user with the number 0.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(name) => write!(f, "token:{name}"),
            Self::Certificate(name) => write!(f, "certificate:{name}"),
            Self::File(name) => write!(f, "file:{name}"),
            Self::Rule(name) => write!(f, "rule:{name}"),
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}
