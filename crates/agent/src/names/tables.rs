//! The tables of the system, `/etc/hosts` and `/etc/services`. The daemon reads a table again after
//! it has changed.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use twinprobe_api::AskedPort;

/// The largest table that is read, in bytes.
const LARGEST: u64 = 4 << 20;
/// The time for which a table is used without a check of its file.
const FRESH: Duration = Duration::from_secs(1);

/// The names in a file. `K` is the kind of thing that has the names.
#[derive(Debug)]
pub struct SystemTable<K> {
    path: PathBuf,
    parse: fn(&str) -> BTreeMap<K, Vec<String>>,
    read: Mutex<Option<TableRead<K>>>,
}

#[derive(Debug)]
struct TableRead<K> {
    looked: Instant,
    file: Option<(SystemTime, u64)>,
    names: BTreeMap<K, Vec<String>>,
}

/// The protocol and the port number of a service.
pub type ServiceKey = (String, u16);

impl SystemTable<IpAddr> {
    pub fn hosts(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            parse: hosts,
            read: Mutex::default(),
        }
    }

    /// Returns the names of an address.
    pub fn names(&self, address: IpAddr) -> Vec<String> {
        self.with(|names| names.get(&address).cloned().unwrap_or_default())
    }
}

impl SystemTable<ServiceKey> {
    pub fn services(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            parse: services,
            read: Mutex::default(),
        }
    }

    /// Returns the names of a port. Without a protocol in the request, names for TCP come first.
    pub fn names(&self, port: &AskedPort) -> Vec<String> {
        let protocols = match &port.protocol {
            Some(protocol) => vec![protocol.clone()],
            None => ["tcp", "udp", "sctp"].map(str::to_owned).into(),
        };
        self.with(|names| {
            let mut keys = protocols.into_iter().map(|protocol| (protocol, port.port));
            keys.find_map(|key| names.get(&key).cloned())
                .unwrap_or_default()
        })
    }
}

impl<K: Ord> SystemTable<K> {
    fn with<T>(&self, use_names: impl FnOnce(&BTreeMap<K, Vec<String>>) -> T) -> T {
        let mut read = self.read.lock();
        let known = match read.take() {
            Some(known) if known.looked.elapsed() < FRESH => known,
            before => self.looked(before),
        };
        use_names(&read.insert(known).names)
    }

    fn looked(&self, before: Option<TableRead<K>>) -> TableRead<K> {
        let looked = Instant::now();
        let found = fs::metadata(&self.path)
            .ok()
            .filter(|file| file.is_file() && file.len() <= LARGEST);
        let file = found.and_then(|file| Some((file.modified().ok()?, file.len())));
        match before {
            Some(before) if before.file == file => TableRead { looked, ..before },
            _ => {
                let bytes = file
                    .and_then(|_| fs::read(&self.path).ok())
                    .unwrap_or_default();
                TableRead {
                    looked,
                    file,
                    names: (self.parse)(&String::from_utf8_lossy(&bytes)),
                }
            }
        }
    }
}

/// Returns the words of each line, without comments.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| {
        line.split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect()
    })
}

fn hosts(text: &str) -> BTreeMap<IpAddr, Vec<String>> {
    let mut names: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
    for words in lines(text) {
        let [address, own @ ..] = &words[..] else {
            continue;
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            continue;
        };
        names
            .entry(address.to_canonical())
            .or_default()
            .extend(own.iter().map(|name| (*name).to_owned()));
    }
    names
}

fn services(text: &str) -> BTreeMap<ServiceKey, Vec<String>> {
    let mut names: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
    for words in lines(text) {
        let [name, port, ..] = &words[..] else {
            continue;
        };
        let Some((port, protocol)) = port.split_once('/') else {
            continue;
        };
        let Ok(port) = port.parse() else { continue };
        names
            .entry((protocol.to_owned(), port))
            .or_default()
            .push((*name).to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn hosts_and_services_are_those_of_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        let table = SystemTable::hosts(&path);
        assert!(
            table.names(address("192.0.2.1")).is_empty(),
            "there is no file"
        );
        fs::write(
            &path,
            "# all\n192.0.2.1 db.example db # the database\n::1 localhost\nnone\n",
        )
        .unwrap();
        let table = SystemTable::hosts(&path);
        assert_eq!(table.names(address("192.0.2.1")), ["db.example", "db"]);
        assert_eq!(table.names(address("::1")), ["localhost"]);
        let path = directory.path().join("services");
        fs::write(
            &path,
            "https 443/tcp\ndomain 53/tcp\ndomain 53/udp\nntp 123/udp # time\nbad\n",
        )
        .unwrap();
        let table = SystemTable::services(&path);
        for (port, expected) in [("443", "https"), ("udp/53", "domain"), ("123", "ntp")] {
            assert_eq!(table.names(&port.parse().unwrap()), [expected], "{port}");
        }
        assert!(table.names(&"udp/443".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_table_that_changes_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        fs::write(&path, "192.0.2.1 one\n").unwrap();
        let table = SystemTable::hosts(&path);
        assert_eq!(table.names(address("192.0.2.1")), ["one"]);
        fs::write(&path, "192.0.2.1 another\n").unwrap();
        while table.names(address("192.0.2.1")) != ["another"] {
            std::thread::yield_now();
        }
    }
}
