//! The other end of a connection.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

/// The other end of a connection. The server puts it into the extensions of each request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub origin: PeerOrigin,
    /// The subject alternative names of the client's certificate, with their kinds, if an authority of `--client-ca` signed it.
    pub names: Arc<[String]>,
}

/// The way by which a peer reached the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOrigin {
    /// `login` is the user that has logged in: `sudo` and `su` do not change it.
    Unix {
        uid: u32,
        gid: u32,
        pid: Option<i32>,
        login: Option<String>,
    },
    Tcp {
        client: SocketAddr,
        local: SocketAddr,
        encrypted: bool,
    },
}

impl PeerOrigin {
    /// The origin as the audit log and the history show it.
    pub fn shown(&self) -> Value {
        match self {
            Self::Unix { uid, gid, pid, login: None } => json!({ "uid": uid, "gid": gid, "pid": pid }),
            Self::Unix { uid, gid, pid, login } => {
                json!({ "uid": uid, "gid": gid, "pid": pid, "login": login })
            }
            Self::Tcp { client, encrypted, .. } => json!({ "address": client.to_string(), "tls": encrypted }),
        }
    }
}

/// Returns the user that has logged in to the session of a process (`loginuid`), by name where /etc/passwd has one. `None` for
/// services, and where the kernel or a container hides it.
pub fn login_of(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?;
    named(text.trim(), &fs::read_to_string("/etc/passwd").unwrap_or_default())
}

fn named(uid: &str, users: &str) -> Option<String> {
    let number: u32 = uid.parse().ok().filter(|number| *number != u32::MAX)?;
    let fields = |line: &'_ str| line.splitn(4, ':').map(str::to_owned).collect::<Vec<_>>();
    let user =
        users.lines().map(fields).find(|fields| fields.get(2).is_some_and(|id| *id == number.to_string()));
    Some(user.map_or_else(|| number.to_string(), |fields| fields[0].clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_its_name_or_its_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nalice:x:1000:1000::/home/alice:/bin/sh\nodd\n";
        assert_eq!(named("1000", users).as_deref(), Some("alice"));
        assert_eq!(named("0", users).as_deref(), Some("root"));
        assert_eq!(named("1001", users).as_deref(), Some("1001"));
        assert_eq!(named("4294967295", users), None, "a service has no login");
        assert_eq!(named("", users), None);
    }

    #[test]
    fn an_origin_is_shown_with_what_is_known() {
        let origin = |login: Option<&str>| {
            PeerOrigin::Unix { uid: 0, gid: 0, pid: Some(7), login: login.map(str::to_owned) }.shown()
        };
        assert_eq!(origin(None), json!({ "uid": 0, "gid": 0, "pid": 7 }));
        assert_eq!(origin(Some("alice")), json!({ "uid": 0, "gid": 0, "pid": 7, "login": "alice" }));
    }
}
