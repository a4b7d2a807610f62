//! Many agents as tasks of one process, with the code of the real ones. A thousand of them share a
//! daemon.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::{Certificate, Client, Method};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use twinprobe_operator::{ApiServerOptions, NodeOptions, run_node};
use twinprobe_tests::cluster::TOKEN;
use twinprobe_tests::http::Address;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{Fleet, NAMESPACE};

/// Requests on their way at the same time.
const AT_ONCE: usize = 32;
/// The time between two looks. More looks would take processor time from the measured work.
const LOOK: Duration = Duration::from_millis(250);
/// The most agents of one daemon. The queue of its socket has 4,096 places.
const PER_DAEMON: usize = 1000;
/// The lifetime of the agents' tokens, which are not renewed here.
const LIFE: u32 = 6 * 3600;

/// The agents of many nodes. They end before the API server does.
pub struct Agents {
    pub runtime: Runtime,
    requests: Arc<AdminRequests>,
    pub fleet: Fleet,
    daemons: Vec<(Daemon, Topology)>,
    pub count: usize,
    /// The state of the agents, in memory: the disks of many nodes are not one disk.
    folder: TempDir,
}

impl Agents {
    /// Starts the cluster and its objects, without agents.
    pub fn new(count: usize) -> Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                ..limit
            },
        )?;
        // Each has one connection to the API server. Half of them may ask their daemon at the same
        // moment.
        let needed = count as u64 * 3 / 2 + 1000;
        ensure!(
            limit.maximum.is_none_or(|most| most >= needed),
            "{count} agents need {needed} open files, and the limit is {:?}",
            limit.maximum
        );
        let fleet = Fleet::new(0)?;
        let daemons = (0..count.div_ceil(PER_DAEMON))
            .map(|_| daemon())
            .collect::<Result<_>>()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let requests = Arc::new(AdminRequests::new(&fleet)?);
        let folder = tempfile::tempdir_in("/dev/shm")?;
        let agents = Self {
            runtime,
            requests,
            fleet,
            daemons,
            count,
            folder,
        };
        agents.runtime.block_on(agents.register())?;
        Ok(agents)
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.count).map(|at| format!("n{at}"))
    }

    fn file(&self, node: &str, end: &str) -> PathBuf {
        self.folder.path().join(format!("{node}.{end}"))
    }

    async fn register(&self) -> Result<()> {
        let each = stream::iter(self.names()).map(|node| self.register_one(node));
        each.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Makes a node with a pod for an agent, and writes the token of the pod into a file.
    async fn register_one(&self, node: String) -> Result<()> {
        let pod = format!("agent-{node}");
        let labels = json!({ "role": "edge" });
        let object = json!({ "metadata": { "name": node, "labels": labels } });
        self.requests.post("/api/v1/nodes", &object).await?;
        let container = json!({ "name": "agent", "image": "none" });
        let spec = json!({ "nodeName": node, "serviceAccountName": "twinprobe",
            "automountServiceAccountToken": false, "containers": [container] });
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        self.requests
            .post(&pods, &json!({ "metadata": { "name": pod }, "spec": spec }))
            .await?;
        let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": pod });
        let spec = json!({ "boundObjectRef": bound, "expirationSeconds": LIFE });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/twinprobe/token");
        let answer = self.requests.post(&path, &json!({ "spec": spec })).await?;
        let token = answer["status"]["token"].as_str().context("a token")?;
        Ok(std::fs::write(self.file(&node, "token"), token)?)
    }

    /// Starts the agent of each node.
    pub fn start(&self) -> Result<()> {
        for (at, name) in self.names().enumerate() {
            let (daemon, _) = &self.daemons[at / PER_DAEMON];
            let Address::Unix(socket) = daemon.address() else {
                panic!("a daemon with a socket")
            };
            let options = NodeOptions {
                server: ApiServerOptions {
                    api_server: self.fleet.cluster.url(),
                    api_ca: self.fleet.cluster.authorities(),
                    api_token: self.file(&name, "token"),
                },
                daemon: format!("unix:{}", socket.display()).parse()?,
                state_dir: self.file(&name, "state"),
                node_name: name,
                pods: false,
                services: false,
                jitter: 1000,
            };
            self.runtime.spawn(run_node(options));
        }
        Ok(())
    }

    /// The processes of the daemons.
    pub fn daemons(&self) -> impl Iterator<Item = u32> {
        self.daemons.iter().map(|(daemon, _)| daemon.pid())
    }

    /// The API server's own metrics.
    pub fn figures(&self) -> Result<ServerFigures> {
        self.runtime.block_on(self.requests.figures())
    }

    /// Reads an object or a list.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.runtime.block_on(self.requests.get(path))
    }

    /// Repeats `look` until it returns something. Returns that, and the seconds since `began`.
    pub fn until<T, F: Future<Output = Result<Option<T>>>>(
        &self,
        what: &str,
        began: Instant,
        limit: Duration,
        look: impl Fn(Arc<AdminRequests>) -> F,
    ) -> Result<(T, f64)> {
        self.runtime.block_on(async {
            loop {
                // A server that begins refuses requests.
                let found = look(Arc::clone(&self.requests)).await;
                match found {
                    Ok(Some(found)) => return Ok((found, began.elapsed().as_secs_f64())),
                    Ok(None) if began.elapsed() < limit => {}
                    Ok(None) => {
                        anyhow::bail!("{what}: not within {limit:?}\n{}", self.fleet.logs())
                    }
                    Err(_) if began.elapsed() < limit => {}
                    Err(error) => return Err(error.context(what.to_owned())),
                }
                sleep(LOOK).await;
            }
        })
    }
}

/// Starts a daemon for many agents.
fn daemon() -> Result<(Daemon, Topology)> {
    let topology = Topology::new()?;
    let most = (PER_DAEMON + 100).to_string();
    let options = [
        "--max-connections",
        &most,
        "--max-connections-per-client",
        &most,
    ];
    let options = options
        .iter()
        .fold(DaemonOptions::default(), |options, word| {
            options.argument(*word)
        });
    Ok((Daemon::start_with(topology.monitor(), &options)?, topology))
}

/// Requests to the API server with all rights, many at a time. kubectl would be a process for each.
pub struct AdminRequests {
    http: Client,
    root: String,
}

impl AdminRequests {
    fn new(fleet: &Fleet) -> Result<Self> {
        // An error means that the process has a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authorities =
            Certificate::from_pem_bundle(&std::fs::read(fleet.cluster.authorities())?)?;
        let http = Client::builder().no_proxy().tls_certs_only(authorities);
        let http = http.timeout(Duration::from_secs(60)).build()?;
        Ok(Self {
            http,
            root: fleet.cluster.url(),
        })
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String> {
        let request = self
            .http
            .request(method, format!("{}{path}", self.root))
            .bearer_auth(TOKEN);
        let answer = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = answer.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{path}: {status}: {text}");
        Ok(text)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.send(Method::POST, path, Some(body)).await?,
        )?)
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.send(Method::GET, path, None).await?,
        )?)
    }

    pub async fn figures(&self) -> Result<ServerFigures> {
        Ok(ServerFigures(
            self.send(Method::GET, "/metrics", None).await?,
        ))
    }
}

/// The API server's own metrics at one moment.
pub struct ServerFigures(String);

impl ServerFigures {
    /// Adds up the samples of a family whose labels contain all of these.
    pub fn sum(&self, family: &str, labels: &[&str]) -> f64 {
        let samples = self.0.lines().filter(|line| {
            let name = line.split(['{', ' ']).next();
            name == Some(family) && labels.iter().all(|label| line.contains(label))
        });
        samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// The requests that the server has answered with what was asked for.
    pub fn requests(&self, verb: &str, resource: &str) -> f64 {
        let labels = [
            format!("verb=\"{verb}\""),
            format!("resource=\"{resource}\""),
            "code=\"2".to_owned(),
        ];
        self.sum(
            "apiserver_request_total",
            &labels.each_ref().map(String::as_str),
        )
    }

    /// All requests about a resource, those that were refused among them.
    pub fn all_requests(&self, resource: &str) -> f64 {
        self.sum(
            "apiserver_request_total",
            &[&format!("resource=\"{resource}\"")],
        )
    }

    /// The requests that had to be repeated.
    pub fn refused(&self) -> f64 {
        ["code=\"429\"", "code=\"5"]
            .map(|code| self.sum("apiserver_request_total", &[code]))
            .iter()
            .sum()
    }

    /// The seconds of processor time.
    pub fn processor(&self) -> f64 {
        self.sum("process_cpu_seconds_total", &[])
    }

    /// The watches of a resource.
    pub fn watches(&self, resource: &str) -> f64 {
        let resource = format!("resource=\"{resource}\"");
        self.sum(
            "apiserver_longrunning_requests",
            &["verb=\"WATCH\"", &resource],
        )
    }

    /// The bytes of all events of the assignments.
    pub fn event_bytes(&self) -> f64 {
        // The label is the kind or the resource, as the version of the server has it.
        self.sum("apiserver_watch_events_sizes_sum", &["ssignment"])
    }
}
