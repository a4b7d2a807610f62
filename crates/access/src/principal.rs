//! The sender of a request, according to the credential.

use std::fmt;

use crate::refusal::Refusal;
use crate::role::Role;

/// The sender of a request and the sender's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub who: Who,
    /// The role; `None` for a certificate that no line of `--client-roles` names.
    pub role: Option<Role>,
}

/// The name of a credential.
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
    /// A client of a daemon that demands no credential, because of `--insecure`.
    Anonymous,
}

impl Principal {
    /// Refuses a principal that does not have the role `needed`.
    pub fn need(&self, needed: Role) -> Result<(), Refusal> {
        match (&self.who, self.role) {
            (_, has) if has >= Some(needed) => Ok(()),
            (Who::File(_), Some(has)) => Err(Refusal::FolderRole { has, needed }),
            (_, has) => Err(Refusal::Role { has, needed }),
        }
    }
}

/// The kind of the credential is part of the name: a token with the name `uid:0` is not the user
/// with the number 0.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_a_file_names_the_option_with_its_role() {
        let refused = |who| {
            let principal = Principal {
                who,
                role: Some(Role::Operator),
            };
            principal.need(Role::Operator).unwrap();
            principal.need(Role::Admin).unwrap_err().to_string()
        };
        assert_eq!(
            refused(Who::File("block.yaml".to_owned())),
            "the role admin is needed; files of --probes have the role operator, and `serve --probes-role admin` \
             gives them that one"
        );
        let token = refused(Who::Token("a".to_owned()));
        assert_eq!(
            token,
            "the role admin is needed; this credential has the role operator"
        );
    }
}
