//! An address of the daemon, and the connections that come there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::umask;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use twinprobe_state_files::private;

use crate::connection::connection::{ClientSocket, refuse, serve};
use crate::connection::connections::{ClientKey, Connections};
use crate::connection::counts::Cut;
use crate::connection::progress::ConnectionProgress;
use crate::connection::stream::Watched;
use crate::listen::options::Address;
use crate::listen::tls::{self, Tls};
use twinprobe_access::{KnownProcess, Peer, PeerOrigin};

/// The time after which a silent peer gets a question whether it still exists, and the time between
/// two such questions.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The number of bytes of an answer that the kernel keeps and has not sent yet.
const UNSENT: u32 = 128 << 10;
/// The number of connections that the kernel lets wait to be accepted. Clients beyond it would try
/// again after a second.
const BACKLOG: u32 = 4096;
/// The most connections that receive a refusal at the same time; further ones are closed without an
/// answer.
const REFUSALS: usize = 32;
/// The pause after the kernel has refused a connection, for lack of descriptors or memory. A
/// connection keeps its descriptor at least for this time, so that it can send a request.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound address and the service there.
#[derive(Debug)]
pub struct Listener {
    socket: Bound,
    tls: Option<Arc<Tls>>,
}

#[derive(Debug)]
enum Bound {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

/// The file of this daemon's socket. Dropping the value removes the file, after an error as well.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A connection that was accepted.
enum AcceptedStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    /// Binds an address. `group` may use a Unix socket, and root; TCP connections are encrypted if
    /// there is a `tls`.
    pub fn bind(
        address: &Address,
        group: Option<u32>,
        tls: Option<Arc<Tls>>,
    ) -> anyhow::Result<Self> {
        match address {
            Address::Unix(path) => {
                let bound = bind_unix(path, group);
                let listener =
                    bound.with_context(|| format!("can't listen on {}", path.display()))?;
                Ok(Self {
                    socket: Bound::Unix(listener, path.clone()),
                    tls: None,
                })
            }
            Address::Tcp(address) => Self::bind_tcp(*address, tls),
        }
    }

    pub fn bind_tcp(address: SocketAddr, tls: Option<Arc<Tls>>) -> anyhow::Result<Self> {
        let bind = || {
            let socket = if address.is_ipv4() {
                TcpSocket::new_v4()
            } else {
                TcpSocket::new_v6()
            }?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        let listener = bind().with_context(|| format!("can't listen on {address}"))?;
        Ok(Self {
            socket: Bound::Tcp(listener),
            tls,
        })
    }

    /// Returns the file of a Unix socket.
    pub fn file(&self) -> Option<SocketFile> {
        match &self.socket {
            Bound::Unix(_, path) => Some(SocketFile(path.clone())),
            Bound::Tcp(_) => None,
        }
    }

    /// Returns the address; a TCP port of 0 is replaced by the port that the kernel chose.
    pub fn name(&self) -> io::Result<String> {
        match &self.socket {
            Bound::Unix(_, path) => Ok(format!("unix:{}", path.display())),
            Bound::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
        }
    }

    /// Serves connections until the daemon stops, and then finishes the open requests.
    pub async fn run(
        self,
        router: Router,
        connections: Arc<Connections>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut tasks = JoinSet::new();
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        loop {
            let accepted = tokio::select! {
                // An error means that the sender was dropped: stop, too.
                _ = stopped.wait_for(|stopped| *stopped) => break,
                accepted = self.accept() => accepted,
            };
            while tasks.try_join_next().is_some() {}
            // Existing connections read their requests before others take their places.
            tokio::task::yield_now().await;
            let (socket, origin) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_client(&error) => continue,
                Err(error) => {
                    // The kernel looks for a descriptor before it looks for a client.
                    if self.has_client() {
                        let evicted = connections.evict(PAUSE);
                        tracing::warn!(%error, evicted, "a connection could not be accepted");
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (tls, counts, limits) = (
                self.tls.clone(),
                connections.counts.clone(),
                connections.limits,
            );
            match connections.admit(ClientKey::from(&origin)) {
                Ok(place) => {
                    let id = place.id;
                    let (router, stopped) = (router.clone(), stopped.clone());
                    let task = tasks.spawn(async move {
                        match open(socket, origin, tls, &place.progress).await {
                            Ok((socket, peer)) => {
                                let progress = Arc::clone(&place.progress);
                                let cut = serve(socket, router, peer, progress, stopped).await;
                                cut.into_iter().for_each(|cut| counts.cut(cut));
                            }
                            Err(error) => {
                                tracing::debug!(%error, "a TLS handshake failed");
                                counts.cut(Cut::Handshake);
                            }
                        }
                    });
                    connections.runs(id, task);
                }
                Err(full) => {
                    counts.cut(Cut::Refused);
                    let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() else {
                        continue;
                    };
                    tasks.spawn(async move {
                        let _permit = permit;
                        let progress = Arc::new(ConnectionProgress::new(limits));
                        if let Ok((socket, _)) = open(socket, origin, tls, &progress).await {
                            refuse(socket, full).await;
                        }
                    });
                }
            }
        }
        // No client can connect from now on.
        drop(self);
        while tasks.join_next().await.is_some() {}
    }

    /// Tells whether a client waits to be accepted.
    fn has_client(&self) -> bool {
        let socket = match &self.socket {
            Bound::Unix(listener, _) => listener.as_fd(),
            Bound::Tcp(listener) => listener.as_fd(),
        };
        let waiting = poll(
            &mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)],
            Some(&Timespec::default()),
        );
        // An error says nothing about clients, so there may be one.
        waiting.map_or(true, |ready| ready > 0)
    }

    async fn accept(&self) -> io::Result<(AcceptedStream, PeerOrigin)> {
        match &self.socket {
            Bound::Unix(listener, _) => {
                let (socket, _) = listener.accept().await?;
                let peer = socket.peer_cred()?;
                let (uid, gid, pid) = (peer.uid(), peer.gid(), peer.pid());
                let origin = PeerOrigin::Unix {
                    uid,
                    gid,
                    pid,
                    known: KnownProcess::of(uid, pid),
                };
                Ok((AcceptedStream::Unix(socket), origin))
            }
            Bound::Tcp(listener) => {
                let (socket, client) = listener.accept().await?;
                let local = socket.local_addr()?;
                let origin = PeerOrigin::Tcp {
                    client,
                    local,
                    encrypted: self.tls.is_some(),
                };
                Ok((AcceptedStream::Tcp(socket), origin))
            }
        }
    }
}

/// Tells whether the client has hung up before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}

/// Sets the options of a socket, and does the TLS handshake if the address has TLS, within the time
/// for a request's head.
async fn open(
    socket: AcceptedStream,
    origin: PeerOrigin,
    tls: Option<Arc<Tls>>,
    progress: &Arc<ConnectionProgress>,
) -> io::Result<(Box<dyn ClientSocket>, Peer)> {
    let peer = |names| Peer { origin, names };
    let (socket, tls) = match (socket, tls) {
        (AcceptedStream::Unix(socket), _) => {
            return Ok((
                Box::new(Watched::new(socket, Arc::clone(progress))),
                peer(Arc::default()),
            ));
        }
        (AcceptedStream::Tcp(socket), tls) => {
            let options = SockRef::from(&socket);
            options.set_tcp_nodelay(true)?;
            options.set_tcp_notsent_lowat(UNSENT)?;
            let keep_alive = TcpKeepalive::new()
                .with_time(KEEP_ALIVE)
                .with_interval(KEEP_ALIVE);
            options.set_tcp_keepalive(&keep_alive.with_retries(3))?;
            (Watched::new(socket, Arc::clone(progress)), tls)
        }
    };
    let Some(tls) = tls else {
        return Ok((Box::new(socket), peer(Arc::default())));
    };
    let Some((deadline, _)) = progress.deadline() else {
        return Err(io::ErrorKind::TimedOut.into());
    };
    let socket = timeout_at(deadline, tls.acceptor().accept(socket)).await??;
    let names = tls::names(socket.get_ref().1.peer_certificates());
    Ok((Box::new(socket), peer(names)))
}

/// Binds a Unix socket of mode 0660. Replaces the file of a daemon that has ended, never that of
/// one that still accepts connections.
fn bind_unix(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        let made: Vec<&Path> = parent
            .ancestors()
            .take_while(|directory| !directory.exists())
            .collect();
        std::fs::create_dir_all(parent)?;
        private::owned(parent)?;
        // The group must be able to pass the directories that the daemon makes for the socket.
        // Existing directories stay unchanged.
        for directory in made.iter().filter(|_| group.is_some()) {
            std::os::unix::fs::chown(directory, None, group)?;
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o710))?;
        }
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another daemon listens there",
            ));
        }
        std::fs::remove_file(path)?;
    }
    // No other user may connect before the socket has its group and mode.
    let before = umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixSocket::new_stream().and_then(|socket| {
        socket.bind(path)?;
        socket.listen(BACKLOG)
    });
    umask(before);
    let listener = bound?;
    std::os::unix::fs::chown(path, None, group)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}
