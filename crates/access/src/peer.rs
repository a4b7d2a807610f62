//! The other end of a connection.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

/// The other end of a connection. The server puts it into the extensions of each request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub origin: PeerOrigin,
    /// The subject alternative names of the client's certificate, with their kinds, if an authority
    /// of `--client-ca` signed it.
    pub names: Arc<[String]>,
}

/// The way in which a peer reached the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOrigin {
    Unix {
        uid: u32,
        gid: u32,
        pid: Option<i32>,
        known: KnownProcess,
    },
    Tcp {
        client: SocketAddr,
        local: SocketAddr,
        encrypted: bool,
    },
}

/// Facts about the process at the other end, from the kernel and /etc/passwd; `None` if these have
/// no facts, as for another container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownProcess {
    /// The name of its user.
    pub user: Option<String>,
    /// The name of the program of the process (`comm`). The process may choose another name.
    pub program: Option<String>,
    /// The user that has logged in to its session (`loginuid`): `sudo` and `su` do not change it.
    /// `None` for services.
    pub login: Option<String>,
}

impl PeerOrigin {
    /// The origin in the form of the audit log and the history.
    pub fn shown(&self) -> Value {
        match self {
            Self::Unix {
                uid,
                gid,
                pid,
                known,
            } => {
                let mut shown = json!({ "uid": uid, "gid": gid, "pid": pid });
                let KnownProcess {
                    user,
                    program,
                    login,
                } = known;
                for (name, text) in [("user", user), ("program", program), ("login", login)] {
                    if let Some(text) = text {
                        shown[name] = text.as_str().into();
                    }
                }
                shown
            }
            Self::Tcp {
                client, encrypted, ..
            } => {
                json!({ "address": client.to_string(), "tls": encrypted })
            }
        }
    }
}

impl KnownProcess {
    /// Reads what is known of a process of this user.
    pub fn of(uid: u32, pid: Option<i32>) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", pid?)).ok();
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self {
            user: named(uid, &users).map(str::to_owned),
            program: read("comm").map(|name| name.trim_end_matches('\n').to_owned()),
            login: read("loginuid").and_then(|login| login_of(login.trim(), &users)),
        }
    }
}

/// Returns the user that has logged in, by name if there is one.
fn login_of(uid: &str, users: &str) -> Option<String> {
    let number: u32 = uid.parse().ok().filter(|number| *number != u32::MAX)?;
    Some(named(number, users).map_or_else(|| number.to_string(), str::to_owned))
}

/// Returns the name of a user in the lines of /etc/passwd.
fn named(uid: u32, users: &str) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_its_name_or_its_number() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\n\nalice:x:1000:1000::/home/alice:/bin/sh\nodd\n";
        assert_eq!(login_of("1000", users).as_deref(), Some("alice"));
        assert_eq!(login_of("0", users).as_deref(), Some("root"));
        assert_eq!(login_of("1001", users).as_deref(), Some("1001"));
        assert_eq!(
            login_of("4294967295", users),
            None,
            "a service has no login"
        );
        assert_eq!((login_of("", users), named(1001, users)), (None, None));
    }

    #[test]
    fn an_origin_is_shown_with_what_is_known() {
        let origin = |known| {
            PeerOrigin::Unix {
                uid: 0,
                gid: 0,
                pid: Some(7),
                known,
            }
            .shown()
        };
        assert_eq!(
            origin(KnownProcess::default()),
            json!({ "uid": 0, "gid": 0, "pid": 7 })
        );
        let login = KnownProcess {
            login: Some("alice".to_owned()),
            ..KnownProcess::default()
        };
        assert_eq!(
            origin(login),
            json!({ "uid": 0, "gid": 0, "pid": 7, "login": "alice" })
        );
        let own = KnownProcess::of(0, std::process::id().try_into().ok());
        assert_eq!(own.user.as_deref(), Some("root"));
        assert!(
            own.program
                .is_some_and(|name| !name.is_empty() && !name.contains('\n'))
        );
    }
}
