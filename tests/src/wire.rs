//! TCP between two namespaces. Its sockets report the traffic on the wire.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::Namespace;

/// The bytes that a sender may have under way: few enough for the rings of a veth.
const UNDER_WAY: libc::c_int = 32 << 10;

/// The packets and bytes of one side of a connection on the wire, or as they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub frames: u64,
    pub bytes: u64,
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Makes a veth pair whose ends are down and as the kernel makes them.
pub fn pair(a: &Namespace, a_name: &str, b: &Namespace, b_name: &str) -> Result<()> {
    let path = b.path().to_string_lossy().into_owned();
    a.run(
        "ip",
        &[
            "link", "add", a_name, "type", "veth", "peer", "name", b_name, "netns", &path,
        ],
    )
}

/// Switches off the offloads of an interface.
pub fn switch_off(namespace: &Namespace, interface: &str) -> Result<()> {
    let off = [
        "tso",
        "off",
        "gso",
        "off",
        "gro",
        "off",
        "tx-udp-segmentation",
        "off",
        "txvlan",
        "off",
    ];
    namespace.run(
        "ethtool",
        &[
            &["-K", interface][..],
            &off,
            &["tx-vlan-stag-hw-insert", "off"],
        ]
        .concat(),
    )
}

/// A connection whose data is all sent and acknowledged. It stays open, so that nothing follows.
#[derive(Debug)]
pub struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    /// Sends this many bytes.
    pub fn transfer(from: &Namespace, to: &Namespace, address: &str, size: usize) -> Result<Self> {
        let listener = to.enter(|| TcpListener::bind(address))??;
        let address = listener.local_addr()?;
        let receiver = thread::spawn(move || -> Result<TcpStream> {
            let mut server = listener.accept()?.0;
            server.read_exact(&mut vec![0; size])?;
            Ok(server)
        });
        let mut client = from.enter(|| TcpStream::connect(address))??;
        client.set_nodelay(true)?;
        limit(&client)?;
        client.write_all(&vec![7; size])?;
        let server = receiver.join().expect("the receiver does not panic")?;
        Ok(Self { client, server })
    }

    /// The packets and bytes that the client and the server have sent.
    fn sent(&self) -> Result<(Traffic, Traffic)> {
        Ok((sent(&self.client, true)?, sent(&self.server, false)?))
    }
}

fn limit(stream: &TcpStream) -> Result<()> {
    let wanted = UNDER_WAY;
    let (value, size) = (
        &raw const wanted,
        size_of::<libc::c_int>() as libc::socklen_t,
    );
    // SAFETY: the option is a number, which the pointer leads to.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            value.cast(),
            size,
        )
    };
    ensure!(set == 0, "SO_SNDBUF: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Returns the traffic that a socket has sent, by `struct tcp_info`. Each segment has Ethernet,
/// IPv4, and TCP with times; the first one has 8 more bytes of options.
fn sent(stream: &TcpStream, is_client: bool) -> Result<Traffic> {
    let mut info = [0_u8; 256];
    let mut size = info.len() as libc::socklen_t;
    // SAFETY: the buffer has as many bytes as `size` says.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut size,
        )
    };
    ensure!(
        got == 0 && size >= 228,
        "TCP_INFO: {}",
        std::io::Error::last_os_error()
    );
    let word = |at: usize| {
        u64::from(u32::from_ne_bytes([
            info[at],
            info[at + 1],
            info[at + 2],
            info[at + 3],
        ]))
    };
    let bytes_sent = word(200) | word(204) << 32;
    ensure!(word(100) == 0, "{} segments were sent again", word(100));
    // An acknowledgement of such segments has an additional option (SACK, RFC 2018 and 2883).
    ensure!(word(216) == 0, "{} segments came twice", word(216));
    ensure!(word(224) == 0, "{} segments came out of order", word(224));
    // The answer to the first segment is sent before there is a socket.
    let frames = word(136) + u64::from(!is_client);
    Ok(Traffic {
        frames,
        bytes: bytes_sent + frames * (14 + 20 + 32) + 8,
    })
}

/// Waits until both sides have sent everything: an answer may be held back for some time.
pub fn settled(connection: &Connection) -> Result<(Traffic, Traffic)> {
    let begun = Instant::now();
    let (mut last, mut since) = (connection.sent()?, Instant::now());
    while since.elapsed() < Duration::from_millis(250) {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "the connection does not come to rest"
        );
        thread::sleep(Duration::from_millis(10));
        let now = connection.sent()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}
