//! The options of `twinprobe-operator node`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use twinprobe_client::Server;

/// The address of the API server. The defaults are those of a pod.
#[derive(Debug, Args)]
pub struct ApiServerOptions {
    /// URL of the API server; by default that of the pod's environment
    #[arg(long, value_name = "URL", default_value_t = of_the_pod())]
    pub api_server: String,
    /// File with the authorities of the API server's certificate (PEM)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    )]
    pub api_ca: PathBuf,
    /// File with the token of the service account; it is read again for each request
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub api_token: PathBuf,
}

/// Options of the agent beside a daemon.
#[derive(Debug, Args)]
pub struct NodeOptions {
    #[command(flatten)]
    pub server: ApiServerOptions,
    /// Name of the node in Kubernetes
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: String,
    /// Address of the node's daemon
    #[arg(long, value_name = "ADDRESS", default_value = Server::DEFAULT)]
    pub daemon: Server,
    /// Folder for the assignments of the node; the node continues with them while the API server is
    /// away
    #[arg(long, value_name = "DIR", default_value = "/var/lib/twinprobe-node")]
    pub state_dir: PathBuf,
    /// Tell the daemon the pods of the node, for probes that select pods; needs the right to list
    /// pods and namespaces
    #[arg(long)]
    pub pods: bool,
    /// Tell the daemon the addresses of Services, for names; needs the right to list services
    #[arg(long, requires = "pods")]
    pub services: bool,
    /// Longest delay of a report; the delays are random, so that not all nodes report at the same
    /// moment
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    pub jitter: u64,
}

impl NodeOptions {
    pub const fn longest_jitter(&self) -> Duration {
        Duration::from_millis(self.jitter)
    }
}

fn of_the_pod() -> String {
    let of = |name: &str| std::env::var(name).ok();
    let host = of("KUBERNETES_SERVICE_HOST").unwrap_or_else(|| "kubernetes.default.svc".to_owned());
    let port = of("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    }
}
