//! Names of addresses by reverse DNS. A question that is under way is not asked again, answers are kept for their time,
//! and each caller waits for a bounded time.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The most addresses whose names are kept, and the most questions at the same time.
const MOST: usize = 8_192;
const AT_ONCE: usize = 16;
/// The most questions that wait for their turn.
const WAITING: usize = 512;
/// The time that a server has to answer, and the number of questions to each server.
const PATIENCE: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 2;
/// The shortest and the longest time for which an answer is kept, and the time without an answer.
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// The most servers of the system that are asked, as resolvers do.
const SERVERS: usize = 3;
/// The most names of an address.
const NAMES: usize = 4;
const LONGEST_NAME: usize = 253;

/// The names of an address once they are known.
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
    /// A resolver that asks these servers; with none, those of the system.
    pub fn new(servers: Vec<SocketAddr>) -> Arc<Self> {
        Arc::new(Self { servers, known: Mutex::default(), turns: Semaphore::new(AT_ONCE) })
    }

    /// Returns the names of an address; `None` if they are not known within `wait`. The question continues in the background.
    pub async fn names(self: &Arc<Self>, address: IpAddr, wait: Duration) -> FoundNames {
        let mut names = self.begin(address)?;
        let found = timeout(wait, names.wait_for(Option::is_some)).await;
        found.ok().and_then(Result::ok).and_then(|names| names.clone())
    }

    /// Asks about an address unless that is known or under way. `None` if too many questions wait.
    fn begin(self: &Arc<Self>, address: IpAddr) -> Option<watch::Receiver<FoundNames>> {
        let mut known = self.known.lock();
        let now = Instant::now();
        if let Some(entry) = known.get(&address).filter(|entry| entry.until > now || is_open(entry)) {
            return Some(entry.names.clone());
        }
        if known.values().filter(|entry| is_open(entry)).count() >= WAITING {
            return None;
        }
        if known.len() >= MOST {
            make_room(&mut known, now);
        }
        let (sender, names) = watch::channel(None);
        known.insert(address, KnownNames { names: names.clone(), until: now });
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

    /// Asks the servers one after the other.
    async fn ask(&self, address: IpAddr) -> DnsAnswer {
        let servers = if self.servers.is_empty() { of_system() } else { self.servers.clone() };
        for server in servers.iter().cycle().take(ATTEMPTS * servers.len()) {
            match timeout(PATIENCE, ask(*server, address)).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(error)) => tracing::debug!(%server, %error, "a DNS server could not be asked"),
                Err(_) => tracing::debug!(%server, "a DNS server did not answer in time"),
            }
        }
        DnsAnswer { names: Vec::new(), lasts: AFTER_FAILURE }
    }
}

fn is_open(entry: &KnownNames) -> bool {
    entry.names.borrow().is_none()
}

/// Removes expired entries; if there are none, the entry that expires next.
fn make_room(known: &mut HashMap<IpAddr, KnownNames>, now: Instant) {
    known.retain(|_, entry| entry.until > now || is_open(entry));
    if known.len() >= MOST {
        let closed = known.iter().filter(|(_, entry)| !is_open(entry));
        let next = closed.min_by_key(|(_, entry)| entry.until).map(|(address, _)| *address);
        next.into_iter().for_each(|address| drop(known.remove(&address)));
    }
}

/// The servers that the system's resolver asks.
fn of_system() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let server = |line: &str| {
        let address = line.trim().strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(address, 53))
    };
    text.lines().filter_map(server).take(SERVERS).collect()
}

async fn ask(server: SocketAddr, address: IpAddr) -> io::Result<DnsAnswer> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    // A connected socket takes packets of this server only.
    socket.connect(server).await?;
    let mut number = [0; 2];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
    let (id, name) = (u16::from_ne_bytes(number), reverse_name(address));
    socket.send(&question(id, &name)?).await?;
    let mut packet = [0; 4_096];
    loop {
        let length = socket.recv(&mut packet).await?;
        // An attacker that guesses the port knows neither the number nor the question.
        if let Some(answer) = answer(&packet[..length], id, &name) {
            return answer;
        }
    }
}

fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let digits = address.octets().into_iter().rev();
            let digits = digits.map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            format!("{}ip6.arpa", digits.collect::<String>())
        }
    }
}

fn question(id: u16, name: &str) -> io::Result<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(io::Error::other)?;
    packet.questions.push(Question::new(name, QTYPE::TYPE(TYPE::PTR), QCLASS::CLASS(CLASS::IN), false));
    packet.build_bytes_vec().map_err(io::Error::other)
}

/// Reads an answer; `None` if it is not that of the question.
fn answer(bytes: &[u8], id: u16, name: &str) -> Option<io::Result<DnsAnswer>> {
    let packet = Packet::parse(bytes).ok()?;
    let is_own = |question: &Question<'_>| question.qname.to_string().eq_ignore_ascii_case(name);
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) || !packet.questions.iter().all(is_own) {
        return None;
    }
    if !matches!(packet.rcode(), RCODE::NoError | RCODE::NameError) {
        return Some(Err(io::Error::other(format!("the server answers {:?}", packet.rcode()))));
    }
    let (mut names, mut lasts) = (Vec::new(), if packet.answers.is_empty() { SHORTEST } else { LONGEST });
    for record in &packet.answers {
        if let RData::PTR(found) = &record.rdata {
            lasts = lasts.min(Duration::from_secs(record.ttl.into()));
            let name = found.0.to_string();
            if is_name(&name) && names.len() < NAMES {
                names.push(name);
            }
        }
    }
    Some(Ok(DnsAnswer { names, lasts: lasts.max(SHORTEST) }))
}

/// Tells whether a name has only the characters of hosts' names. The owner of an address can choose any name.
fn is_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_usual)
}

#[cfg(test)]
mod tests {
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::PTR;

    use super::*;

    fn reply(id: u16, asked: &str, names: &[(&str, u32)]) -> Vec<u8> {
        let mut packet = Packet::new_reply(id);
        let asked = Name::new(asked).unwrap();
        let question = Question::new(asked.clone(), QTYPE::TYPE(TYPE::PTR), QCLASS::CLASS(CLASS::IN), false);
        packet.questions.push(question);
        for (name, ttl) in names {
            let data = RData::PTR(PTR(Name::new_unchecked(name)));
            packet.answers.push(ResourceRecord::new(asked.clone(), CLASS::IN, *ttl, data));
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn names_are_asked_for_backwards() {
        assert_eq!(reverse_name("192.0.2.17".parse().unwrap()), "17.2.0.192.in-addr.arpa");
        let name = reverse_name("2001:db8::17".parse().unwrap());
        assert!(name.starts_with("7.1.0.0.") && name.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{name}");
        assert!(Packet::parse(&question(7, &name).unwrap()).is_ok());
    }

    #[test]
    fn only_the_answer_of_the_question_counts() {
        let name = reverse_name("192.0.2.17".parse().unwrap());
        let own = reply(7, &name, &[("db.example", 90), ("x;rm.example", 90), ("", 90)]);
        let expected = DnsAnswer { names: vec!["db.example".to_owned()], lasts: Duration::from_secs(90) };
        assert_eq!(answer(&own, 7, &name).unwrap().unwrap(), expected);
        assert!(answer(&own, 8, &name).is_none(), "another number");
        assert!(answer(&own, 7, "18.2.0.192.in-addr.arpa").is_none(), "another question");
        assert!(answer(&question(7, &name).unwrap(), 7, &name).is_none(), "a question");
        let none = answer(&reply(7, &name, &[]), 7, &name).unwrap().unwrap();
        assert_eq!(none, DnsAnswer { names: Vec::new(), lasts: SHORTEST });
        for length in 0..own.len() {
            let _ = answer(&own[..length], 7, &name);
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_holds_nothing_up() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolver = ReverseDns::new(vec![silent.local_addr().unwrap()]);
        let address = "192.0.2.17".parse().unwrap();
        assert_eq!(resolver.names(address, Duration::from_millis(1)).await, None);
        // A later call returns the answer to the question that this call has sent.
        let answering = tokio::spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (length, client) = silent.recv_from(&mut packet).await.unwrap();
                let id = Packet::parse(&packet[..length]).unwrap().id();
                let reply = reply(id, &reverse_name(address), &[("db.example", 5)]);
                let _ = silent.send_to(&reply, client).await;
            }
        });
        let names = resolver.names(address, Duration::from_secs(600)).await;
        answering.abort();
        assert_eq!(names.as_deref(), Some(&["db.example".to_owned()][..]));
        let again = resolver.names(address, Duration::ZERO).await;
        assert_eq!(again.as_deref(), Some(&["db.example".to_owned()][..]), "it is kept");
    }
}
