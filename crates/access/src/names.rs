//! The names of certificates, in the form of `--client-roles` and records.

use std::net::IpAddr;

/// The kind of a subject alternative name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Dns,
    Email,
    Uri,
    Ip,
}

impl NameKind {
    const ALL: [Self; 4] = [Self::Dns, Self::Email, Self::Uri, Self::Ip];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Ip => "ip",
        }
    }

    /// Returns the kind that a name without a prefix looks like.
    fn of(name: &str) -> Self {
        if name.parse::<IpAddr>().is_ok() {
            Self::Ip
        } else if name.contains(':') {
            Self::Uri
        } else if name.contains('@') {
            Self::Email
        } else {
            Self::Dns
        }
    }
}

/// Splits a name at the prefix for its kind; `None` without a prefix.
fn prefixed(name: &str) -> Option<(NameKind, &str)> {
    let (prefix, rest) = name.split_once(':')?;
    let kind = NameKind::ALL
        .into_iter()
        .find(|kind| kind.prefix().eq_ignore_ascii_case(prefix))?;
    Some((kind, rest))
}

/// Returns the only form of a certificate's name: the name itself if its form shows its kind, else
/// with the prefix of its kind. So names of different kinds are never the same.
pub fn canonical(kind: NameKind, name: &str) -> String {
    if prefixed(name).is_none() && NameKind::of(name) == kind {
        name.to_owned()
    } else {
        format!("{}:{name}", kind.prefix())
    }
}

/// Returns the canonical name that a line of `--client-roles` means.
pub fn of_line(name: &str) -> String {
    match prefixed(name) {
        Some((NameKind::Ip, rest)) => canonical(
            NameKind::Ip,
            &rest
                .parse::<IpAddr>()
                .map_or(rest.to_owned(), |ip| ip.to_string()),
        ),
        Some((kind, rest)) => canonical(kind, rest),
        None => canonical(NameKind::of(name), name),
    }
}
