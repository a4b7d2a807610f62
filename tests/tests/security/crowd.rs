//! A thousand half-open connections and ten thousand garbage requests at the same time: a reader of
//! a probe does not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use twinprobe_tests::http::{self, Address};
use twinprobe_tests::random::Random;
use twinprobe_tests::wait::EndOnDrop;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, sample, scaled, timed};

const HALF_OPEN: usize = 1000;
const SENDERS: usize = 8;
/// The most that 99 % of the readings may take.
const MOST: Duration = Duration::from_millis(100);

#[test]
fn half_open_connections_and_garbage_stop_no_reader() -> Result<()> {
    read_beside_a_crowd(|took, how| {
        assert!(took.len() >= 100, "{} readings over {how}", took.len());
    })
}

#[timed("99 % of the readings take less than 100 ms")]
fn half_open_connections_and_garbage_slow_no_reader() -> Result<()> {
    read_beside_a_crowd(|took, how| {
        let p99 = took[took.len() * 99 / 100];
        assert!(
            p99 < MOST,
            "99 % of the readings over {how} took up to {p99:?}"
        );
    })
}

/// Gives `check` the times of all readings, sorted, for each way to connect.
fn read_beside_a_crowd(check: impl Fn(&[Duration], &str)) -> Result<()> {
    allow_descriptors();
    // The usual limits, which all half-open connections fit in, and one that they exceed.
    for limits in ["", "--max-connections 128"] {
        let topology = Topology::new()?;
        let arguments = format!("--listen 127.0.0.1:0 --insecure {limits}");
        let arguments = arguments.split_whitespace().map(Into::into).collect();
        let daemon = Daemon::start_with(
            topology.monitor(),
            &DaemonOptions {
                arguments,
                ..Default::default()
            },
        )?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        daemon
            .put("/v1/probes/p", &sample::counter_config("mon0", "XDP_PASS"))
            .expect(201);
        let address = daemon.tcp_addresses()[0];
        let (over_tcp, over_socket) = topology.monitor().enter(|| crowd(&daemon, address))??;
        for (mut took, how) in [(over_tcp, "TCP"), (over_socket, "the socket")] {
            took.sort();
            let how = format!("{how}, {limits}");
            println!(
                "{} readings over {how}: median {:?}",
                took.len(),
                took[took.len() / 2]
            );
            check(&took, &how);
        }
        bystanders.finish()?;
    }
    Ok(())
}

/// Opens connections that send half a head or nothing, and reads the probe while others send
/// garbage. Returns the times of readings over TCP, from the address that the garbage comes from,
/// and over the socket.
fn crowd(daemon: &Daemon, address: SocketAddr) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let mut half_open = Vec::new();
    for number in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(address)?;
        if number % 2 == 0 {
            stream.write_all(b"GET /v1/probes/p/metrics HTTP/1.1\r\nhost: l")?;
        }
        half_open.push(stream);
    }
    let each = scaled(2_000, 10_000) as usize / SENDERS;
    let (sent, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let namespace = twinprobe_tests::Namespace::open("/proc/thread-self/ns/net")?;
    thread::scope(|scope| {
        let _over = EndOnDrop(&over);
        let senders: Vec<_> = (0..SENDERS)
            .map(|number| {
                let (sent, namespace) = (&sent, &namespace);
                scope.spawn(move || namespace.enter(|| garbage(address, number as u64, each, sent)))
            })
            .collect();
        let (mut over_tcp, mut over_socket) = (Vec::new(), Vec::new());
        while senders.iter().any(|sender| !sender.is_finished()) || over_tcp.len() < 200 {
            for (address, took) in [
                (Address::Tcp(address), &mut over_tcp),
                (daemon.address(), &mut over_socket),
            ] {
                let begun = Instant::now();
                let answer = http::request(&address, "GET", "/v1/probes/p/metrics", &[], b"")?;
                took.push(begun.elapsed());
                ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
            }
        }
        for sender in senders {
            sender.join().expect("no panic")??;
        }
        ensure!(
            sent.load(Ordering::Relaxed) == each * SENDERS,
            "{sent:?} garbage requests were sent"
        );
        drop(half_open);
        Ok((over_tcp, over_socket))
    })
}

/// Sends this thread's part of the garbage, each piece on a connection of its own.
fn garbage(address: SocketAddr, seed: u64, each: usize, sent: &AtomicUsize) -> Result<()> {
    let mut random = Random::seeded(seed * 2 + 1);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let header = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    for number in 0..each {
        let noise: Vec<u8> = (0..random.below(2000) + 1)
            .map(|_| random.below(256) as u8)
            .collect();
        let what: &[u8] = match number % 8 {
            0 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a handshake, here in the clear",
            1 => b"GET / HTTP/9.9\r\n\r\n",
            2 => b"PUT /v1/probes/p HTTP/1.1\r\nhost: l\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            3 => b"PUT /v1/probes/p HTTP/1.1\r\nhost: l\r\ncontent-length: 99999999999999999999\r\n\r\n",
            4 => b"GET /v1/probes/../../etc/shadow HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\r\n",
            5 => long.as_bytes(),
            6 => header.as_bytes(),
            _ => &noise,
        };
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_millis(5)))?;
        // The daemon may close the connection at any time.
        let _ = stream.write_all(what);
        let _ = stream.read(&mut [0; 1000]);
        sent.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Raises the limit of descriptors of this process as far as possible.
fn allow_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}
