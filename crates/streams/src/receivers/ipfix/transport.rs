//! Connections to collectors.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::receiver::SendError;
use crate::tls::ReceiverTls;

/// The time that a collector may take to answer, or to read its messages.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of datagrams that are sent without a pause. A collector loses the datagrams that do
/// not fit into its buffer.
const BURST: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// The shortest headers in front of a message in a datagram, in bytes: those of IPv6 and UDP, and
/// those of IPv4 and UDP.
const HEADERS: [usize; 2] = [48, 28];

/// The address and the kind of a connection.
#[derive(Clone, Debug)]
pub enum CollectorRoute {
    Tcp,
    Tls(ReceiverTls),
    Udp { mtu: usize },
}

/// An open connection.
pub enum CollectorLink {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Udp {
        socket: UdpSocket,
        /// The most octets of a message.
        limit: usize,
    },
}

impl CollectorLink {
    /// Opens a connection to `HOST:PORT`.
    pub async fn open(collector: &str, route: &CollectorRoute) -> Result<Self, SendError> {
        let opened = timeout(PATIENCE, Self::connect(collector, route)).await;
        opened.unwrap_or_else(|_| Err(SendError::new(format!("{collector} does not answer"))))
    }

    async fn connect(collector: &str, route: &CollectorRoute) -> Result<Self, SendError> {
        let failed = |error: io::Error| SendError::caused(collector, &error);
        match route {
            CollectorRoute::Tcp => Ok(Self::Tcp(tcp(collector).await.map_err(failed)?)),
            CollectorRoute::Tls(tls) => {
                let config = tls.config()?;
                let host = collector
                    .rsplit_once(':')
                    .map_or(collector, |(host, _)| host)
                    .trim_matches(['[', ']']);
                let name = ServerName::try_from(host.to_owned()).map_err(|error| {
                    SendError::caused(&format!("{host} is not a name for TLS"), &error)
                })?;
                let stream = tcp(collector).await.map_err(failed)?;
                let stream = TlsConnector::from(config)
                    .connect(name, stream)
                    .await
                    .map_err(failed)?;
                Ok(Self::Tls(Box::new(stream)))
            }
            CollectorRoute::Udp { mtu } => {
                let address = resolved(collector).await.map_err(failed)?;
                let any: SocketAddr = if address.is_ipv6() {
                    ([0_u16; 8], 0).into()
                } else {
                    ([0_u8; 4], 0).into()
                };
                let socket = UdpSocket::bind(any).await.map_err(failed)?;
                socket.connect(address).await.map_err(failed)?;
                let headers = if address.is_ipv6() {
                    HEADERS[0]
                } else {
                    HEADERS[1]
                };
                Ok(Self::Udp {
                    socket,
                    limit: mtu - headers,
                })
            }
        }
    }

    /// Sends messages. Over UDP nothing confirms their arrival.
    pub async fn send(&mut self, messages: &[Vec<u8>]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => write(stream, messages).await,
            Self::Tls(stream) => write(stream, messages).await,
            Self::Udp { socket, .. } => {
                for burst in messages.chunks(BURST) {
                    for message in burst {
                        socket.send(message).await?;
                    }
                    sleep(PAUSE).await;
                }
                // A host on which no collector listens may have answered with an error.
                socket.take_error()?.map_or(Ok(()), Err)
            }
        }
    }

    /// Tells whether the collector has closed the connection.
    pub fn is_closed(&self) -> bool {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
            Self::Udp { .. } => return false,
        };
        // A collector sends nothing until it closes the connection, except for TLS messages.
        matches!(
            stream.peek(&mut [0; 1]).now_or_never(),
            Some(Ok(0) | Err(_))
        )
    }

    /// Tells the collector that no more messages come, and waits until the collector has closed its
    /// side. It closes its side after it has read the last message.
    pub async fn finish(self) -> Result<(), SendError> {
        let closed = timeout(PATIENCE, async {
            match self {
                Self::Tcp(mut stream) => {
                    stream.shutdown().await?;
                    ended(&mut stream).await
                }
                Self::Tls(mut stream) => {
                    stream.shutdown().await?;
                    ended(&mut stream).await
                }
                Self::Udp { .. } => Ok(()),
            }
        });
        match closed.await {
            Ok(closed) => {
                closed.map_err(|error| SendError::caused("the collector does not confirm", &error))
            }
            Err(_) => Err(SendError::new(
                "the collector does not close the connection after the last message; set confirm: false if it never does",
            )),
        }
    }
}

async fn resolved(collector: &str) -> io::Result<SocketAddr> {
    let found = lookup_host(collector).await?.next();
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

async fn tcp(collector: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(collector).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn write(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    messages: &[Vec<u8>],
) -> io::Result<()> {
    for message in messages {
        timeout(PATIENCE, stream.write_all(message))
            .await
            .map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, "the collector does not read")
            })??;
    }
    stream.flush().await
}

/// Waits until the collector closes the connection. Collectors of IPFIX send nothing, but a server
/// of another protocol answers before it closes the connection.
async fn ended(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    const OTHER: &str =
        "a program answers there, and collectors of IPFIX do not answer: is this the right port?";
    match stream.read(&mut [0; 1]).await {
        Ok(0) => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, OTHER)),
        // The collector has closed the TCP connection without a closing message of TLS.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(error) => Err(error),
    }
}
