//! The reasons to refuse a request before its handler runs.

use crate::role::Role;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "a credential is needed: send Authorization: Bearer TOKEN, or a certificate of --client-ca"
    )]
    NoCredential,
    #[error(
        "Authorization has no valid token: it is unknown or was withdrawn; `twinprobe token` makes one"
    )]
    WrongToken,
    #[error("the role {needed} is needed{}", owned(.has))]
    Role { has: Option<Role>, needed: Role },
    #[error(
        "the role {needed} is needed; files of --probes have the role {has}, and `serve --probes-role {needed}` gives them \
         that one"
    )]
    FolderRole { has: Role, needed: Role },
    #[error("Twinprobe-Role is {0:?}; viewer, collector, operator or admin is expected")]
    NoRole(String),
    #[error("Host is not a name or address of this daemon; `serve --host NAME` adds names")]
    Host,
    #[error("Origin is another server: its pages may not use this daemon")]
    Origin,
    #[error("the body is {0}; send application/json or application/yaml")]
    MediaType(String),
    #[error(
        "the body is not multipart/form-data with a boundary; send the parts config and capture (curl -F)"
    )]
    NotMultipart,
}

impl Refusal {
    /// Returns the name of the reason in records.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::WrongToken => "wrong_token",
            Self::Role { .. } | Self::FolderRole { .. } => "role",
            Self::NoRole(_) => "unknown_role",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::MediaType(_) => "media_type",
            Self::NotMultipart => "not_multipart",
        }
    }
}

fn owned(role: &Option<Role>) -> String {
    match role {
        Some(role) => format!("; this credential has the role {role}"),
        None => "; no line of --client-roles names this certificate".to_owned(),
    }
}
