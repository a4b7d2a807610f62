//! A daemon with a probe, and connections to it without an HTTP client.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use twinprobe_tests::http::{self, Address};
use twinprobe_tests::sample::{counter_config, xdp_counter};
use twinprobe_tests::{Daemon, DaemonOptions, Response, Topology};

/// The longest time for which a test waits for an answer or the end of a connection.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon with the probe `p`, whose document has a megabyte.
pub struct Scene {
    pub daemon: Daemon,
    pub topology: Topology,
}

impl Scene {
    /// Starts a daemon with these arguments, separated by spaces.
    pub fn new(arguments: &str) -> Result<Self> {
        let topology = Topology::new()?;
        let options = DaemonOptions {
            arguments: arguments.split_whitespace().map(Into::into).collect(),
            ..Default::default()
        };
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mut config = counter_config("mon0", "XDP_PASS");
        config["ingress"]["source"] = xdp_counter("XDP_PASS")
            .replace("max_entries, 1", "max_entries, 65536")
            .into();
        daemon.put("/v1/probes/p", &config).expect(201);
        Ok(Self { daemon, topology })
    }

    /// Connects to the daemon's Unix socket.
    pub fn connect(&self) -> Result<UnixStream> {
        let stream = UnixStream::connect(self.daemon.directories().socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends the head of a request, without the empty line, on a connection of its own.
    pub fn begin(&self, head: &str) -> Result<UnixStream> {
        let mut stream = self.connect()?;
        write!(stream, "{head}\r\nhost: localhost\r\n")?;
        Ok(stream)
    }

    /// Connects to one of the daemon's TCP addresses.
    pub fn connect_tcp(&self, index: usize) -> Result<TcpStream> {
        let address = self.tcp(index)?;
        let stream = self
            .topology
            .monitor()
            .enter(|| TcpStream::connect(address))??;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Returns one of the daemon's TCP addresses.
    pub fn tcp(&self, index: usize) -> Result<SocketAddr> {
        self.daemon
            .tcp_addresses()
            .get(index)
            .copied()
            .context("an address")
    }

    /// Sends a request to a TCP address.
    pub fn request_tcp(&self, index: usize, method: &str, path: &str) -> Result<Response> {
        let address = Address::Tcp(self.tcp(index)?);
        self.topology
            .monitor()
            .enter(|| http::request(&address, method, path, &[], b""))?
    }

    /// Returns a number from the daemon's own metrics, 0 if the metrics do not have it.
    pub fn sample(&self, name: &str) -> u64 {
        let page = self.daemon.get("/metrics").expect(200).text().to_owned();
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }
}

/// Reads one answer to a GET.
pub fn answer(stream: impl Read) -> Result<Response> {
    http::read_response(&mut BufReader::new(stream), "GET")
}

/// Waits until the other end has closed the connection. Returns the bytes received before.
pub fn until_closed(mut stream: impl Read) -> Result<Vec<u8>> {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(received),
    }
}
