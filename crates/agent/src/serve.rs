//! The run of the daemon: it opens the kernel and the state, listens, serves until a signal stops
//! it, and ends after the present requests.

mod signals;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use twinprobe_faults::crash;
use twinprobe_kernel::{Expedite, Kernel, QuiesceMethod, TcMethod, memory};
use twinprobe_windows::WindowStore;

use crate::api::router;
use crate::api::state::{self, Readiness};
use crate::engine::cost::CostOptions;
use crate::engine::engine::Engine;
use crate::engine::pods::options::PodOptions;
use crate::folder::changes::WatchedFiles;
use crate::folder::deploy::{self, FolderOptions};
use crate::history::options::{HistoryOptions, HistorySource};
use crate::libxdp::LibxdpOptions;
use crate::limits::options::RequestLimits;
use crate::names::book::NameBook;
use crate::names::options::NameOptions;
use crate::nodes::file::NodesFile;
use crate::nodes::options::NodesOptions;
use crate::privileges::Needs;
use crate::rules::book::RuleBook;
use crate::rules::options::RuleOptions;
use crate::serve::signals::{StopSignals, reload};
use crate::store::Store;
use twinprobe_access::Access;
use twinprobe_access::AccessOptions;
use twinprobe_compiler::{CompilerOptions, Toolchain};
use twinprobe_serve::Connections;
use twinprobe_serve::Listener;
use twinprobe_serve::Tls;
use twinprobe_serve::{Address, ListenOptions};

/// The time that requests under way get to end once the daemon is stopping.
const DRAIN: Duration = Duration::from_secs(5);

/// The time without a request after which the daemon is idle.
const QUIET: Duration = Duration::from_secs(1);

/// The longest name of a machine, in bytes.
const NODE_NAME_LIMIT: usize = 255;

#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    listen: ListenOptions,
    /// Directory of the probes' configurations and windows
    #[arg(long, value_name = "DIR", default_value = "/var/lib/twinprobe")]
    state_dir: PathBuf,
    /// Name of this machine in documents; by default the host name
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,
    /// Room for the retained windows of all probes; beyond it the daemon removes the oldest
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    retain_bytes: u64,
    #[command(flatten)]
    limits: RequestLimits,
    /// Directory of the pins of kernel objects; the daemon mounts bpffs there if it is missing
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/twinprobe")]
    bpffs: PathBuf,
    /// Remove the probes from the kernel when the daemon stops
    #[arg(long)]
    detach_on_exit: bool,
    #[command(flatten)]
    access: AccessOptions,
    /// Method by which a flip waits until no CPU runs the old twin
    #[arg(long, value_name = "METHOD", value_parser = quiesce_methods(), default_value = "auto")]
    quiesce: QuiesceMethod,
    /// Method by which TC programs are attached
    #[arg(long, value_name = "METHOD", value_parser = tc_methods(), default_value = "auto")]
    tc_attach: TcMethod,
    #[command(flatten)]
    libxdp: LibxdpOptions,
    /// Expedited grace periods of the kernel while probes are attached and removed
    #[arg(long, value_name = "WHEN", value_parser = expedite_choices(), default_value = "auto")]
    expedite: Expedite,
    #[command(flatten)]
    pods: PodOptions,
    #[command(flatten)]
    names: NameOptions,
    #[command(flatten)]
    history: HistoryOptions,
    #[command(flatten)]
    nodes: NodesOptions,
    #[command(flatten)]
    rules: RuleOptions,
    #[command(flatten)]
    folder: FolderOptions,
    /// Read certificates, tokens, roles and the file of --nodes again when they change, as on
    /// SIGHUP
    #[arg(long)]
    reload_on_change: bool,
    #[command(flatten)]
    cost: CostOptions,
    #[command(flatten)]
    compiler: CompilerOptions,
}

impl Serve {
    /// The files that can be exchanged while the daemon runs.
    fn files(&self) -> Vec<PathBuf> {
        let (listen, access) = (&self.listen, &self.access);
        let certificates = [&listen.tls_cert, &listen.tls_key, &listen.client_ca];
        let files = certificates.into_iter().chain([
            &access.tokens,
            &access.client_roles,
            &self.nodes.nodes,
        ]);
        files.flatten().cloned().collect()
    }

    /// The reasons for which the daemon must keep privileges.
    pub fn needs(&self) -> Needs {
        let low = |port: u16| (1..1024).contains(&port);
        let is_low =
            |address: &Address| matches!(address, Address::Tcp(address) if low(address.port()));
        let low_ports = self.listen.listen.iter().any(is_low)
            || self
                .listen
                .listen_metrics
                .iter()
                .any(|address| low(address.port()));
        let (group, addresses) = (self.access.socket_group.is_some(), self.cost.measure_cost);
        Needs {
            low_ports,
            group,
            addresses,
            loader: self.libxdp.xdp_loader.is_some(),
        }
    }
}

fn node_name(name: &str) -> Result<String, String> {
    match name.len() {
        1..=NODE_NAME_LIMIT if !name.contains(char::is_control) => Ok(name.to_owned()),
        _ => Err(format!(
            "a name has 1 to {NODE_NAME_LIMIT} bytes without control characters"
        )),
    }
}

fn host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("the host name can't be read")?;
    node_name(name.trim_end())
        .map_err(|rule| anyhow!("the host name can't be used ({rule}); give --node-name"))
}

fn quiesce_methods() -> impl TypedValueParser<Value = QuiesceMethod> {
    let choice = |method: QuiesceMethod| {
        PossibleValue::new(method.name()).hide(method == QuiesceMethod::None)
    };
    PossibleValuesParser::new(QuiesceMethod::CHOICES.map(choice)).map(|name| {
        QuiesceMethod::CHOICES
            .into_iter()
            .find(|method| method.name() == name)
            .unwrap_or(QuiesceMethod::Auto)
    })
}

fn tc_methods() -> impl TypedValueParser<Value = TcMethod> {
    PossibleValuesParser::new(TcMethod::CHOICES.map(TcMethod::name)).map(|name| {
        TcMethod::CHOICES
            .into_iter()
            .find(|method| method.name() == name)
            .unwrap_or(TcMethod::Auto)
    })
}

fn expedite_choices() -> impl TypedValueParser<Value = Expedite> {
    PossibleValuesParser::new(Expedite::CHOICES.map(Expedite::name)).map(|name| {
        Expedite::CHOICES
            .into_iter()
            .find(|choice| choice.name() == name)
            .unwrap_or(Expedite::Auto)
    })
}

/// Runs the daemon until SIGTERM, SIGINT or the end of a listener.
pub async fn serve(options: Serve) -> anyhow::Result<()> {
    // The daemon handles signals before anything else, so that a stop during the takeover of probes
    // is also orderly.
    let mut told = StopSignals::new()?;
    let hangup = signal(SignalKind::hangup())?;
    let files = options
        .reload_on_change
        .then(|| WatchedFiles::new(options.files()));
    let node = options.node_name.map_or_else(host_name, Ok)?;
    options.listen.check(options.access.tokens.is_some())?;
    let open_tcp = options.listen.insecure
        && options.access.tokens.is_none()
        && options.listen.client_ca.is_none();
    let group = options.access.socket_gid()?;
    let access =
        Arc::new(Access::open(options.access, open_tcp).context("access can't be controlled")?);
    let audit = access.audit();
    let tls = Tls::load(&options.listen)?;
    options.folder.check().context("--probes can't be used")?;
    options.rules.keys().map_err(|error| anyhow!(error))?;
    let book = NameBook::open(options.names).map_err(|error| anyhow!(error))?;
    let history = HistorySource::open(options.history).map_err(|error| anyhow!(error))?;
    let nodes = NodesFile::open(options.nodes)
        .map_err(|error| anyhow!(error))?
        .map(Arc::new);
    tokio::spawn(reload(
        hangup,
        files,
        tls.clone(),
        Arc::clone(&access),
        nodes.clone(),
    ));
    let store = Store::open(&options.state_dir, options.limits.keep_history)
        .context("the state directory can't be used")?;
    // Addresses are bound before the kernel is touched: a daemon that fails here has changed no
    // probe.
    let (mut listeners, mut metrics_listeners, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for address in &options.listen.listen {
        let listener = Listener::bind(address, group, tls.clone())?;
        sockets.extend(listener.file());
        listeners.push(listener);
    }
    for address in &options.listen.listen_metrics {
        metrics_listeners.push(Listener::bind_tcp(*address, None)?);
    }
    let (quiesce, tc, expedite) = (options.quiesce, options.tc_attach, options.expedite);
    let measured = options.cost.measure_cost;
    let kernel = Kernel::open(
        &options.bpffs,
        &options.state_dir,
        quiesce,
        tc,
        expedite,
        measured,
    );
    let kernel = kernel.map_err(|error| {
        let denied = error.source.kind() == io::ErrorKind::PermissionDenied;
        let hint = if denied { "; is this root?" } else { "" };
        anyhow::Error::new(error).context(format!("the kernel can't be used{hint}"))
    })?;
    let toolchain = Toolchain::discover(options.compiler);
    match toolchain.known() {
        Ok(compiler) => {
            tracing::info!(clang = compiler.version, quiesce = ?kernel.host.quiescer.workers.in_use(), "starting");
        }
        Err(error) => tracing::error!(
            error,
            "nothing can be compiled: running probes are adopted, others wait for a clang and a PUT, or for the next start"
        ),
    }
    options.libxdp.apply(&toolchain).await?;
    let windows = WindowStore::open(
        &options.state_dir,
        &store.database,
        options.retain_bytes,
        options.limits.keep_free_bytes,
    )
    .context(
        "the windows can't be read, and stay as they are; `twinprobe doctor --state-dir` examines the store",
    )?;
    let engine = Engine::new(
        node,
        kernel,
        toolchain,
        store,
        windows,
        options.limits,
        options.pods,
    )?;

    // Early clients are told to wait; the addresses are announced once requests are answered.
    let readiness = Arc::new(Readiness::default());
    let answered = Arc::new(Notify::new());
    let rules = Arc::new(RuleBook::new(
        Arc::clone(&engine),
        audit.clone(),
        options.rules,
    ));
    let api = state::Api {
        engine: Arc::clone(&engine),
        rules: Arc::clone(&rules),
        names: Arc::new(book),
        history: history.map(Arc::new),
        nodes,
        readiness: Arc::clone(&readiness),
        access: Arc::clone(&access),
        answered: Arc::clone(&answered),
    };
    let (all, metrics) = (router::router(api.clone()), router::metrics_router(api));
    let (limits, counts) = (options.listen.limits, &engine.telemetry.http.connections);
    let connections = Connections::new(limits, counts.clone());
    let scrapers = Connections::new(limits.of_scrapers(), counts.clone());
    let (stop, stopped) = watch::channel(false);
    let mut servers = JoinSet::new();
    let (mut names, mut background) = (Vec::new(), JoinSet::new());
    let served = listeners
        .into_iter()
        .map(|listener| (listener, &all, &connections));
    let scraped = metrics_listeners
        .into_iter()
        .map(|listener| (listener, &metrics, &scrapers));
    for (listener, router, connections) in served.chain(scraped) {
        names.push(listener.name()?);
        servers.spawn(listener.run(router.clone(), Arc::clone(connections), stopped.clone()));
    }
    tokio::task::spawn_blocking(|| crash::pause("opened")).await?;
    let restored = tokio::select! {
        // The signal comes first: a daemon that has been told to stop takes over no probe.
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
        rules
            .start()
            .await
            .context("the stored rules can't be read")?;
        readiness.set_ready();
        engine.measure_costs(options.cost);
        // The start has also used memory: the daemon gives it back once it is idle.
        answered.notify_one();
        background.spawn(rest(answered));
        background.spawn(deploy::follow(Arc::clone(&engine), audit, options.folder));
        for name in names {
            // Scripts wait for this line, while a log line could be filtered out. The line is
            // written in one piece, so that a script that reads the file never sees a part of it.
            let _ = io::stderr().write_all(format!("listening on {name}\n").as_bytes());
        }
        told.wait(&mut servers).await?;
    }
    readiness.set_stopping();
    // A running change ends by itself, and no other change begins.
    background.abort_all();
    tracing::info!("draining");
    let _ = stop.send(true);
    if tokio::time::timeout(DRAIN, rules.stop()).await.is_err() {
        tracing::warn!("actions of rules were still under way; the next start takes them again");
    }
    engine.registry.end_streams();
    if tokio::time::timeout(DRAIN, async {
        while servers.join_next().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::warn!(
            "requests were still under way after {} s and are cut off",
            DRAIN.as_secs()
        );
    }
    drop((servers, sockets));
    access.end();
    if options.detach_on_exit {
        engine.detach_all().await?;
        tracing::info!("all probes are detached");
        tokio::task::spawn_blocking(|| crash::pause("detached_all")).await?;
    }
    tokio::task::spawn_blocking(move || {
        engine.readings.windows.settle();
        engine.deployer.store.database.close();
    })
    .await?;
    Ok(())
}

/// Returns idle memory to the system when no request has come for a while.
async fn rest(answered: Arc<Notify>) {
    loop {
        answered.notified().await;
        while tokio::time::timeout(QUIET, answered.notified())
            .await
            .is_ok()
        {}
        // An error means that the daemon ends.
        let _ = tokio::task::spawn_blocking(memory::return_idle_memory).await;
    }
}
