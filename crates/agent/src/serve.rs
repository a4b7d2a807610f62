//! The daemon's run: it opens the kernel and the state, listens, serves until a signal stops it, and drains.

pub mod peer;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use twinprobe_kernel::{Kernel, QuiesceMethod, TcMethod, crash};
use twinprobe_windows::WindowStore;

use crate::access::access::Access;
use crate::access::options::AccessOptions;
use crate::api::router;
use crate::api::state::{self, Readiness};
use crate::compiler::toolchain::Toolchain;
use crate::engine::engine::Engine;
use crate::serve::peer::{Origin, Peer};
use crate::store::Store;

/// The time that requests under way get to end once the daemon is stopping.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Address to listen on; may be given several times
    #[arg(long, value_name = "unix:/PATH|IP:PORT", default_value = "unix:/run/twinprobe/twinprobe.sock")]
    listen: Vec<Address>,
    /// Directory of the probes' configurations and windows
    #[arg(long, value_name = "DIR", default_value = "/var/lib/twinprobe")]
    state_dir: PathBuf,
    /// Room for the retained windows of all probes; beyond it the oldest go
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    retain_bytes: u64,
    /// Directory of the pins of kernel objects; bpffs is mounted there if it is not mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/twinprobe")]
    bpffs: PathBuf,
    /// Serve on addresses that other machines reach although whoever reaches them controls this host
    #[arg(long)]
    insecure: bool,
    /// Remove the probes from the kernel when the daemon stops
    #[arg(long)]
    detach_on_exit: bool,
    #[command(flatten)]
    access: AccessOptions,
    /// Method of waiting after a flip until no CPU runs the old twin
    #[arg(long, value_name = "METHOD", value_parser = quiesce_methods(), default_value = "auto")]
    quiesce: QuiesceMethod,
    /// Method of attaching TC programs
    #[arg(long, value_name = "METHOD", value_parser = tc_methods(), default_value = "auto")]
    tc_attach: TcMethod,
}

fn quiesce_methods() -> impl TypedValueParser<Value = QuiesceMethod> {
    let choice =
        |method: QuiesceMethod| PossibleValue::new(method.name()).hide(method == QuiesceMethod::None);
    PossibleValuesParser::new(QuiesceMethod::CHOICES.map(choice)).map(|name| {
        QuiesceMethod::CHOICES.into_iter().find(|method| method.name() == name).unwrap_or(QuiesceMethod::Auto)
    })
}

fn tc_methods() -> impl TypedValueParser<Value = TcMethod> {
    PossibleValuesParser::new(TcMethod::CHOICES.map(TcMethod::name)).map(|name| {
        TcMethod::CHOICES.into_iter().find(|method| method.name() == name).unwrap_or(TcMethod::Auto)
    })
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Unix(path))
            } else {
                Err("the path of a Unix socket must be absolute".into())
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| "neither unix:/PATH nor IP:PORT".into())
    }
}

/// Runs the daemon until SIGTERM, SIGINT or the end of a listener.
pub async fn serve(options: Serve) -> anyhow::Result<()> {
    // Signals are handled before anything else, so that a daemon that is stopped while it takes over probes ends in
    // order, too.
    let mut told = Told::new()?;
    check_addresses(&options.listen, options.insecure)?;
    let open_tcp = options.insecure && options.access.tokens.is_none();
    let access = Arc::new(Access::open(options.access, open_tcp).context("access can't be controlled")?);
    reload_on_hangup(Arc::clone(&access))?;
    let store = Store::open(&options.state_dir).context("the state directory can't be used")?;
    // Addresses are bound before the kernel is touched: a daemon that fails here has changed no probe.
    let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
    for address in &options.listen {
        listeners.push(Listener::bind(address).await?);
        if let Address::Unix(path) = address {
            sockets.push(SocketFile(path));
        }
    }
    let kernel = Kernel::open(&options.bpffs, &options.state_dir, options.quiesce, options.tc_attach);
    let kernel = kernel.map_err(|error| {
        let denied = error.source.kind() == io::ErrorKind::PermissionDenied;
        let hint = if denied { "; is this root?" } else { "" };
        anyhow::Error::new(error).context(format!("the kernel can't be used{hint}"))
    })?;
    let toolchain = Toolchain::discover();
    match toolchain.known() {
        Ok(compiler) => {
            tracing::info!(clang = compiler.version, quiesce = ?kernel.host.quiescer.workers.in_use(), "starting");
        }
        Err(error) => tracing::error!(
            error,
            "nothing can be compiled: running probes are adopted, others wait for a clang and a PUT, or for the next start"
        ),
    }
    let windows = WindowStore::new(options.state_dir.join("windows"), options.retain_bytes);
    let engine = Engine::new(kernel, toolchain, store, windows);

    // Early clients are told to wait; the addresses are announced once requests are answered.
    let readiness = Arc::new(Readiness::default());
    let router =
        router::router(state::Api { engine: Arc::clone(&engine), readiness: Arc::clone(&readiness), access });
    let (stop, stopped) = watch::channel(false);
    let mut servers = JoinSet::new();
    let mut names = Vec::new();
    for listener in listeners {
        names.push(listener.name()?);
        listener.serve(&router, stopped.clone(), &mut servers);
    }
    tokio::task::spawn_blocking(|| crash::pause("opened")).await?;
    let restored = tokio::select! {
        // The signal comes first: a daemon that has been told to stop takes over nothing any more.
        biased;
        // The next daemon finishes a deployment that is under way.
        told = told.wait(&mut servers) => {
            told?;
            false
        }
        restored = engine.restore() => {
            restored.context("the stored probes can't be read")?;
            true
        }
    };
    if restored {
        readiness.set_ready();
        for name in names {
            // Scripts wait for this line; a log line could be filtered.
            let _ = writeln!(io::stderr(), "listening on {name}");
        }
        told.wait(&mut servers).await?;
    }
    readiness.set_stopping();
    tracing::info!("draining");
    let _ = stop.send(true);
    engine.end_streams();
    if tokio::time::timeout(DRAIN, async { while servers.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!("requests were still under way after {} s and are cut off", DRAIN.as_secs());
    }
    drop(sockets);
    if options.detach_on_exit {
        engine.detach_all().await?;
        tracing::info!("all probes are detached");
        tokio::task::spawn_blocking(|| crash::pause("detached_all")).await?;
    }
    Ok(())
}

fn check_addresses(addresses: &[Address], insecure: bool) -> anyhow::Result<()> {
    let is_open = |address: &&Address| matches!(address, Address::Tcp(tcp) if !tcp.ip().is_loopback());
    if !insecure && let Some(Address::Tcp(address)) = addresses.iter().find(is_open) {
        bail!(
            "{address} is reachable from other machines, and whoever reaches it controls this host; listen on \
             a Unix socket or on 127.0.0.1, or add --insecure"
        );
    }
    Ok(())
}

/// The file of a socket that this daemon listens on. Dropping the value removes the file, after an error as well.
struct SocketFile<'a>(&'a Path);

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// A bound address.
enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    async fn bind(address: &Address) -> anyhow::Result<Self> {
        match address {
            Address::Unix(path) => {
                let listener =
                    bind_unix(path).with_context(|| format!("can't listen on {}", path.display()))?;
                Ok(Self::Unix(listener, path.clone()))
            }
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).await;
                Ok(Self::Tcp(listener.with_context(|| format!("can't listen on {address}"))?))
            }
        }
    }

    /// Returns the address; a TCP port of 0 is replaced by the port that the kernel chose.
    fn name(&self) -> io::Result<String> {
        match self {
            Self::Unix(_, path) => Ok(format!("unix:{}", path.display())),
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
        }
    }

    fn serve(
        self,
        router: &Router,
        mut stopped: watch::Receiver<bool>,
        servers: &mut JoinSet<io::Result<()>>,
    ) {
        let shutdown = async move {
            // An error means that the sender was dropped: stop, too.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let router = router.clone();
        match self {
            Self::Unix(listener, _) => {
                let router = router.layer(axum::middleware::from_fn(peer_of_connection));
                let service = router.into_make_service_with_connect_info::<Peer>();
                servers.spawn(axum::serve(listener, service).with_graceful_shutdown(shutdown).into_future());
            }
            Self::Tcp(listener) => {
                let router = router.layer(axum::middleware::from_fn(peer_of_connection));
                let service = router.into_make_service_with_connect_info::<Peer>();
                servers.spawn(axum::serve(listener, service).with_graceful_shutdown(shutdown).into_future());
            }
        }
    }
}

/// Reads the files about access again on each SIGHUP.
fn reload_on_hangup(access: Arc<Access>) -> io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let access = Arc::clone(&access);
            let _ = tokio::task::spawn_blocking(move || access.reload()).await;
        }
    });
    Ok(())
}

async fn peer_of_connection(
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(peer);
    next.run(request).await
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let origin = stream.io().peer_cred().map_or(
            // The kernel always knows the other end; nobody has these numbers.
            Origin::Unix { uid: u32::MAX, gid: u32::MAX, pid: None },
            |cred| Origin::Unix { uid: cred.uid(), gid: cred.gid(), pid: cred.pid() },
        );
        Self { origin, names: Arc::new([]) }
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        let client = *stream.remote_addr();
        let local = stream.io().local_addr().unwrap_or(client);
        Self { origin: Origin::Tcp { client, local, encrypted: false }, names: Arc::new([]) }
    }
}

/// Binds a Unix socket. Replaces the file of a daemon that has ended, never that of one that still accepts connections.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon listens there"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// The signals that mean that the daemon is to stop.
struct Told {
    terminate: Signal,
    interrupt: Signal,
}

impl Told {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for SIGTERM, SIGINT or the end of a server.
    async fn wait(&mut self, servers: &mut JoinSet<io::Result<()>>) -> anyhow::Result<()> {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            Some(ended) = servers.join_next() => {
                ended?.context("a server ended")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unix_paths_or_sockets() {
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert_eq!("127.0.0.1:0".parse(), Ok(Address::Tcp(([127, 0, 0, 1], 0).into())));
        for bad in ["unix:x", "localhost:80", "80", ""] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn other_machines_are_kept_out_unless_asked_for() {
        let open = ["0.0.0.0:80".parse().unwrap()];
        assert!(check_addresses(&open, false).is_err());
        assert!(check_addresses(&open, true).is_ok());
        let closed = ["127.0.0.1:80", "[::1]:80", "unix:/run/x"].map(|text| text.parse().unwrap());
        assert!(check_addresses(&closed, false).is_ok());
    }
}
