//! The open connections, and the limits for new ones. If there is no room, a new connection
//! replaces one without a request, or a refused one: half-open connections, idle ones and unread
//! bodies keep no client out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::connection::counts::{ConnectionCounts, Cut};
use crate::connection::limits::ConnectionLimits;
use crate::connection::progress::{ConnectionProgress, Phase};
use twinprobe_access::PeerOrigin;

/// One of this number of places is reserved for users of this host. So clients over the network
/// can't shut them out.
const KEPT: u32 = 8;

/// The connections of all addresses.
#[derive(Debug)]
pub struct Connections {
    pub limits: ConnectionLimits,
    pub counts: ConnectionCounts,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    places: BTreeMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    client: ClientKey,
    progress: Arc<ConnectionProgress>,
    /// `None` until the task of the connection runs.
    task: Option<AbortHandle>,
}

/// A client, whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKey {
    User(u32),
    /// An IPv4 address, or an IPv6 network of 64 bits: a host may use all addresses in it.
    Address(IpAddr),
}

/// The place of one connection. Dropping the value frees the place.
#[derive(Debug)]
pub struct ConnectionPlace {
    pub id: u64,
    pub progress: Arc<ConnectionProgress>,
    connections: Arc<Connections>,
}

/// The limit that keeps a connection out, as the option's name and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub option: &'static str,
    pub limit: u32,
}

impl Connections {
    pub fn new(limits: ConnectionLimits, counts: ConnectionCounts) -> Arc<Self> {
        Arc::new(Self {
            limits,
            counts,
            open: Mutex::default(),
        })
    }

    /// Takes a place for a new connection, perhaps that of a connection that waits for a request.
    pub fn admit(self: &Arc<Self>, client: ClientKey) -> Result<ConnectionPlace, Full> {
        let mut open = self.open.lock();
        let ConnectionLimits {
            mut max_connections,
            max_connections_per_client,
            ..
        } = self.limits;
        if let ClientKey::Address(_) = client {
            max_connections -= max_connections / KEPT;
        }
        let of_client = open
            .places
            .values()
            .filter(|entry| entry.client == client)
            .count();
        if of_client >= max_connections_per_client as usize {
            let full = Full {
                option: "--max-connections-per-client",
                limit: max_connections_per_client,
            };
            open.evict(Some(client), Duration::ZERO, &self.counts)
                .ok_or(full)?;
        } else if open.places.len() >= max_connections as usize {
            let full = Full {
                option: "--max-connections",
                limit: max_connections,
            };
            open.evict(None, Duration::ZERO, &self.counts).ok_or(full)?;
        }
        let id = open.next;
        open.next += 1;
        let progress = Arc::new(ConnectionProgress::new(self.limits));
        open.places.insert(
            id,
            OpenConnection {
                client,
                progress: Arc::clone(&progress),
                task: None,
            },
        );
        self.counts.open.inc();
        Ok(ConnectionPlace {
            id,
            progress,
            connections: Arc::clone(self),
        })
    }

    /// Notes the task of a connection; the loss of its place ends the task. The connection may have
    /// ended already.
    pub fn runs(&self, id: u64, task: AbortHandle) {
        if let Some(entry) = self.open.lock().places.get_mut(&id) {
            entry.task = Some(task);
        }
    }

    /// Ends a connection that has waited for a request for at least `time`, to free its descriptor.
    /// Returns false if there is none.
    pub fn evict(&self, time: Duration) -> bool {
        self.open.lock().evict(None, time, &self.counts).is_some()
    }
}

impl OpenConnections {
    /// Ends a connection of one client or of all that has waited for at least `time`. The first
    /// choice is the connection that has waited longest for the head of a request or the rest of a
    /// refused body. Without such a connection, it is the one that has been idle longest.
    fn evict(
        &mut self,
        client: Option<ClientKey>,
        time: Duration,
        counts: &ConnectionCounts,
    ) -> Option<()> {
        let waiting = self.places.iter().filter(|(_, entry)| {
            // The task of a connection that was accepted just now is not known yet.
            entry.task.is_some() && client.is_none_or(|client| client == entry.client)
        });
        let waiting = waiting.filter_map(|(&id, entry)| {
            let (phase, since) = entry.progress.phase();
            (phase != Phase::Active && since.elapsed() >= time).then_some((
                phase == Phase::Idle,
                since,
                id,
            ))
        });
        let (_, _, id) = waiting.min()?;
        self.places.remove(&id)?.task?.abort();
        counts.cut(Cut::Evicted);
        Some(())
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.connections.open.lock().places.remove(&self.id);
        self.connections.counts.open.dec();
    }
}

impl From<&PeerOrigin> for ClientKey {
    fn from(origin: &PeerOrigin) -> Self {
        match origin {
            PeerOrigin::Unix { uid, .. } => Self::User(*uid),
            PeerOrigin::Tcp { client, .. } => Self::Address(match client.ip().to_canonical() {
                IpAddr::V6(address) => {
                    Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
                }
                v4 => v4,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    fn connections(max_connections: u32, max_connections_per_client: u32) -> Arc<Connections> {
        let second = Duration::from_secs(1);
        let limits = ConnectionLimits {
            max_connections,
            max_connections_per_client,
            header_timeout: second,
            body_timeout: second,
            write_timeout: second,
            idle_timeout: second,
        };
        Connections::new(limits, ConnectionCounts::default())
    }

    /// Opens a connection whose task holds its place forever.
    fn open(
        connections: &Arc<Connections>,
        user: u32,
    ) -> Result<(Arc<ConnectionProgress>, JoinHandle<()>), Full> {
        let place = connections.admit(ClientKey::User(user))?;
        let (id, progress) = (place.id, Arc::clone(&place.progress));
        let task = tokio::spawn(async move {
            let _place = place;
            std::future::pending::<()>().await;
        });
        connections.runs(id, task.abort_handle());
        Ok((progress, task))
    }

    async fn was_ended(task: JoinHandle<()>) -> bool {
        tokio::time::timeout(Duration::from_millis(50), task)
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn those_who_ask_for_nothing_make_room() {
        let connections = connections(3, 3);
        let (idle, idle_task) = open(&connections, 1).unwrap();
        let (active, active_task) = open(&connections, 1).unwrap();
        let (_, fresh_task) = open(&connections, 1).unwrap();
        active.begin();
        idle.begin();
        idle.end();
        let (last, last_task) = open(&connections, 2).unwrap();
        assert!(
            was_ended(fresh_task).await,
            "a half-open connection goes before an idle one"
        );
        last.begin();
        let (other, other_task) = open(&connections, 2).unwrap();
        assert!(was_ended(idle_task).await);
        other.begin();
        let full = Full {
            option: "--max-connections",
            limit: 3,
        };
        assert_eq!(
            open(&connections, 3).unwrap_err(),
            full,
            "requests are never cut off"
        );
        other.rest();
        let (instead, instead_task) = open(&connections, 3).unwrap();
        assert!(
            was_ended(other_task).await,
            "what a refused request sends keeps no other client out"
        );
        instead.begin();
        assert_eq!(connections.counts.open.get(), 3);
        for task in [active_task, last_task, instead_task] {
            assert!(!was_ended(task).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_has_time_for_its_request() {
        let connections = connections(3, 3);
        let (_, task) = open(&connections, 1).unwrap();
        let time = Duration::from_millis(100);
        assert!(!connections.evict(time));
        tokio::time::advance(time).await;
        assert!(connections.evict(time));
        assert!(was_ended(task).await);
    }

    #[tokio::test]
    async fn one_client_takes_no_place_of_others() {
        let connections = connections(4, 2);
        let (_, others_task) = open(&connections, 1).unwrap();
        let (first, _) = open(&connections, 2).unwrap();
        let (second, _) = open(&connections, 2).unwrap();
        first.begin();
        second.begin();
        let full = Full {
            option: "--max-connections-per-client",
            limit: 2,
        };
        assert_eq!(open(&connections, 2).unwrap_err(), full);
        second.end();
        assert!(open(&connections, 2).is_ok(), "a place of its own");
        assert!(!was_ended(others_task).await);
    }

    #[tokio::test]
    async fn the_network_leaves_room_for_users_of_this_host() {
        let connections = connections(16, 16);
        let taken = |client| -> Result<ConnectionPlace, Full> {
            let place = connections.admit(client)?;
            place.progress.begin();
            Ok(place)
        };
        let places: Vec<ConnectionPlace> = (0..14)
            .map(|host| taken(ClientKey::Address([10, 0, 0, host].into())).unwrap())
            .collect();
        let full = Full {
            option: "--max-connections",
            limit: 14,
        };
        assert_eq!(
            taken(ClientKey::Address([10, 0, 0, 99].into())).unwrap_err(),
            full
        );
        let users = [
            taken(ClientKey::User(0)).unwrap(),
            taken(ClientKey::User(0)).unwrap(),
        ];
        assert_eq!(
            taken(ClientKey::User(0)).unwrap_err(),
            Full {
                option: "--max-connections",
                limit: 16
            }
        );
        drop((places, users));
    }

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let client = |address: &str| {
            let local = ([0, 0, 0, 0], 0).into();
            ClientKey::from(&PeerOrigin::Tcp {
                client: address.parse().unwrap(),
                local,
                encrypted: false,
            })
        };
        assert_eq!(client("[2001:db8::1]:1"), client("[2001:db8::ffff:2]:2"));
        assert_ne!(client("[2001:db8:0:1::1]:1"), client("[2001:db8::1]:1"));
        assert_eq!(client("[::ffff:192.0.2.1]:1"), client("192.0.2.1:2"));
        assert_ne!(client("192.0.2.2:1"), client("192.0.2.1:1"));
    }
}
