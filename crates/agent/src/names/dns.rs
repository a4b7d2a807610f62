//! Names of addresses by reverse DNS. A running query is not repeated, answers are kept as long as
//! they are valid, and each call waits for a limited time.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The most addresses whose names are kept, and the most queries at the same time.
const MOST: usize = 8_192;
const AT_ONCE: usize = 16;
/// The most queries that wait for their turn.
const WAITING: usize = 512;
/// The longest time to wait for a server's answer, and the number of attempts with each server.
const PATIENCE: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 2;
/// The shortest and the longest time for which an answer is kept, and the time for which a failure
/// is kept.
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// The most names of an address.
const NAMES: usize = 4;
const LONGEST_NAME: usize = 253;

/// The names of an address; `None` until they are known.
type FoundNames = Option<Arc<[String]>>;

/// The resolver, with its cache.
#[derive(Debug)]
pub struct ReverseDns {
    servers: Vec<SocketAddr>,
    known: Mutex<HashMap<IpAddr, KnownNames>>,
    turns: Semaphore,
}

#[derive(Debug)]
struct KnownNames {
    names: watch::Receiver<FoundNames>,
    until: Instant,
}

/// The answer of a server.
#[derive(Debug, PartialEq, Eq)]
struct DnsAnswer {
    names: Vec<String>,
    lasts: Duration,
}

impl ReverseDns {
    /// Makes a resolver that queries these servers; if there are none, the servers of the system.
    pub fn new(servers: Vec<SocketAddr>) -> Arc<Self> {
        Arc::new(Self {
            servers,
            known: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    /// Returns the names of an address; `None` if they are not known within `wait`. The query
    /// continues in the background.
    pub async fn names(self: &Arc<Self>, address: IpAddr, wait: Duration) -> FoundNames {
        let mut names = self.begin(address)?;
        let found = timeout(wait, names.wait_for(Option::is_some)).await;
        found
            .ok()
            .and_then(Result::ok)
            .and_then(|names| names.clone())
    }

    /// Begins a query about an address that has neither valid names nor a running query. `None` if
    /// too many queries wait.
    fn begin(self: &Arc<Self>, address: IpAddr) -> Option<watch::Receiver<FoundNames>> {
        let mut known = self.known.lock();
        let now = Instant::now();
        if let Some(entry) = known
            .get(&address)
            .filter(|entry| entry.until > now || is_open(entry))
        {
            return Some(entry.names.clone());
        }
        if known.values().filter(|entry| is_open(entry)).count() >= WAITING {
            return None;
        }
        if known.len() >= MOST {
            make_room(&mut known, now);
        }
        let (sender, names) = watch::channel(None);
        known.insert(
            address,
            KnownNames {
                names: names.clone(),
                until: now,
            },
        );
        drop(known);
        let resolver = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = resolver.turns.acquire().await;
            let DnsAnswer { names, lasts } = resolver.ask(address).await;
            if let Some(entry) = resolver.known.lock().get_mut(&address) {
                entry.until = Instant::now() + lasts;
            }
            let _ = sender.send(Some(names.into()));
        });
        Some(names)
    }

    async fn ask(&self, address: IpAddr) -> DnsAnswer {
        let mut name = Name::from(address);
        name.set_fqdn(true);
        let asked = match self.resolver() {
            Ok(resolver) => resolver.reverse_lookup(name).await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(found) => answer(found.answers()),
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) if is_an_answer(&none) => {
                answer(&[])
            }
            Err(error) => {
                tracing::debug!(%address, %error, "the DNS servers gave no answer");
                DnsAnswer {
                    names: Vec::new(),
                    lasts: AFTER_FAILURE,
                }
            }
        }
    }

    /// Returns a resolver for a single query, because the servers of the system may change. This
    /// module keeps answers, including failures, and the resolver keeps none.
    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let servers = self.servers.iter().map(name_server).collect();
            let config = ResolverConfig::from_name_servers(servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        (options.timeout, options.attempts) = (PATIENCE, ATTEMPTS);
        (options.cache_size, options.use_hosts_file) = (0, ResolveHosts::Never);
        builder.build()
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    server
        .connections
        .iter_mut()
        .for_each(|connection| connection.port = address.port());
    server
}

/// Tells whether the server has answered that there is no name.
fn is_an_answer(none: &NoRecords) -> bool {
    matches!(
        none.response_code,
        ResponseCode::NoError | ResponseCode::NXDomain
    )
}

fn is_open(entry: &KnownNames) -> bool {
    entry.names.borrow().is_none()
}

/// Removes expired entries; if there are none, the entry that expires next.
fn make_room(known: &mut HashMap<IpAddr, KnownNames>, now: Instant) {
    known.retain(|_, entry| entry.until > now || is_open(entry));
    if known.len() >= MOST {
        let closed = known.iter().filter(|(_, entry)| !is_open(entry));
        let next = closed
            .min_by_key(|(_, entry)| entry.until)
            .map(|(address, _)| *address);
        next.into_iter()
            .for_each(|address| drop(known.remove(&address)));
    }
}

/// Returns the names in an answer.
fn answer(records: &[Record]) -> DnsAnswer {
    let (mut names, mut lasts) = (
        Vec::new(),
        if records.is_empty() {
            SHORTEST
        } else {
            LONGEST
        },
    );
    for record in records {
        if let RData::PTR(found) = &record.data {
            lasts = lasts.min(Duration::from_secs(record.ttl.into()));
            let name = found.0.to_ascii();
            let name = name.trim_end_matches('.');
            if is_name(name) && names.len() < NAMES {
                names.push(name.to_owned());
            }
        }
    }
    DnsAnswer {
        names,
        lasts: lasts.max(SHORTEST),
    }
}

/// Tells whether a name has only the characters of host names. This is necessary because the owner
/// of an address can choose any name.
fn is_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_usual)
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::{Message, OpCode};
    use hickory_resolver::proto::rr::rdata::PTR;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, UdpSocket};

    use super::*;

    fn records(names: &[(&str, u32)]) -> Vec<Record> {
        let record = |(name, ttl): &(&str, u32)| {
            let asked = Name::from("192.0.2.17".parse::<IpAddr>().unwrap());
            Record::from_rdata(
                asked,
                *ttl,
                RData::PTR(PTR(
                    Name::from_labels(name.split('.').map(str::as_bytes)).unwrap()
                )),
            )
        };
        names.iter().map(record).collect()
    }

    fn reply(question: &[u8], code: ResponseCode, names: &[(&str, u32)]) -> Message {
        let question = Message::from_vec(question).unwrap();
        let mut reply = Message::response(question.metadata.id, OpCode::Query);
        reply.metadata.response_code = code;
        reply.add_queries(question.queries);
        reply.add_answers(records(names));
        reply
    }

    #[test]
    fn only_names_that_hosts_have_count() {
        let found = answer(&records(&[("db.example", 90), ("x;rm.example", 90)]));
        let expected = DnsAnswer {
            names: vec!["db.example".to_owned()],
            lasts: Duration::from_secs(90),
        };
        assert_eq!(found, expected);
        assert_eq!(
            answer(&[]),
            DnsAnswer {
                names: Vec::new(),
                lasts: SHORTEST
            }
        );
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_holds_nothing_up() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolver = ReverseDns::new(vec![silent.local_addr().unwrap()]);
        let address = "192.0.2.17".parse().unwrap();
        assert_eq!(
            resolver.names(address, Duration::from_millis(1)).await,
            None
        );
        // This call has sent the query; a later call returns the answer.
        let answering = tokio::spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (length, client) = silent.recv_from(&mut packet).await.unwrap();
                let reply = reply(
                    &packet[..length],
                    ResponseCode::NoError,
                    &[("db.example", 5)],
                );
                let _ = silent.send_to(&reply.to_vec().unwrap(), client).await;
            }
        });
        let names = resolver.names(address, Duration::from_secs(600)).await;
        answering.abort();
        assert_eq!(names.as_deref(), Some(&["db.example".to_owned()][..]));
        let again = resolver.names(address, Duration::ZERO).await;
        assert_eq!(
            again.as_deref(),
            Some(&["db.example".to_owned()][..]),
            "it is kept"
        );
    }

    #[tokio::test]
    async fn an_address_without_a_name_is_an_answer_and_a_failure_is_none() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolver = ReverseDns::new(vec![server.local_addr().unwrap()]);
        let answering = tokio::spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (length, client) = server.recv_from(&mut packet).await.unwrap();
                let asked = Message::from_vec(&packet[..length]).unwrap().queries[0]
                    .name()
                    .to_ascii();
                let fails = asked.starts_with("18.");
                let code = if fails {
                    ResponseCode::ServFail
                } else {
                    ResponseCode::NXDomain
                };
                let _ = server
                    .send_to(
                        &reply(&packet[..length], code, &[]).to_vec().unwrap(),
                        client,
                    )
                    .await;
            }
        });
        let none = resolver.ask("192.0.2.17".parse().unwrap()).await;
        assert_eq!(
            none,
            DnsAnswer {
                names: Vec::new(),
                lasts: SHORTEST
            }
        );
        let failed = resolver.ask("192.0.2.18".parse().unwrap()).await;
        assert_eq!(
            failed,
            DnsAnswer {
                names: Vec::new(),
                lasts: AFTER_FAILURE
            }
        );
        answering.abort();
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_for_udp_comes_over_tcp() {
        let over_tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = over_tcp.local_addr().unwrap();
        let over_udp = UdpSocket::bind(address).await.unwrap();
        let resolver = ReverseDns::new(vec![address]);
        let cut = tokio::spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (length, client) = over_udp.recv_from(&mut packet).await.unwrap();
                let mut reply = reply(&packet[..length], ResponseCode::NoError, &[]);
                reply.metadata.truncation = true;
                let _ = over_udp.send_to(&reply.to_vec().unwrap(), client).await;
            }
        });
        let whole = tokio::spawn(async move {
            let (mut connection, _) = over_tcp.accept().await.unwrap();
            let mut question = vec![0; usize::from(connection.read_u16().await.unwrap())];
            connection.read_exact(&mut question).await.unwrap();
            let reply = reply(&question, ResponseCode::NoError, &[("db.example", 300)])
                .to_vec()
                .unwrap();
            connection.write_u16(reply.len() as u16).await.unwrap();
            connection.write_all(&reply).await.unwrap();
            connection
        });
        let names = resolver
            .names("192.0.2.17".parse().unwrap(), Duration::from_secs(600))
            .await;
        assert_eq!(names.as_deref(), Some(&["db.example".to_owned()][..]));
        cut.abort();
        drop(whole.await.unwrap());
    }
}
