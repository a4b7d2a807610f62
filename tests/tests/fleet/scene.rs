//! A cluster with the chart's objects, the operator, and nodes: real daemons in namespaces, each
//! with an agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::cluster::{Cluster, Ended, ports, started};
use twinprobe_tests::helper;
use twinprobe_tests::http::Address;
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

pub const NAMESPACE: &str = "twinprobe";
/// Counts packets in a map, in which the verifier asks for the check of each lookup.
const SOURCE: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#ifndef STEP
#define STEP 1
#endif
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 16);
} seen SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
    __u32 key = 7;
    __u64 zero = 0, *packets;
    bpf_map_update_elem(&seen, &key, &zero, BPF_NOEXIST);
    packets = bpf_map_lookup_elem(&seen, &key);
    if (packets)
        __sync_fetch_and_add(packets, STEP);
    return XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// A node: its daemon, and the agent beside it.
pub struct FleetNode {
    pub name: String,
    daemon: Option<Daemon>,
    pub agent: Option<Ended>,
    options: DaemonOptions,
    generator: Generator,
    topology: Topology,
}

impl FleetNode {
    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon")
    }

    /// Sends packets to the node.
    pub fn send(&mut self, packets: u64) -> Result<()> {
        self.generator.send(packets)
    }

    /// Counts the packets in all windows of the probe, the open one among them, and those that were
    /// sent.
    pub fn counted(&self) -> Result<(u64, u64)> {
        let windows = Windows::of(self.daemon(), "seen");
        windows.try_close()?;
        let list = windows.try_list("")?;
        ensure!(list.lost == 0, "{list:?}");
        let packets = list
            .seqs()
            .into_iter()
            .map(|seq| total(&windows.get(seq), "ingress", "seen"));
        Ok((packets.sum(), self.generator.sent()?))
    }

    /// Ends agent and daemon as kubelet ends a pod, sends packets while neither runs, and starts
    /// the next daemon.
    pub fn exchange_daemon(&mut self, packets: u64) -> Result<()> {
        self.agent = None;
        let (status, directories) = self.daemon.take().context("a daemon")?.terminate()?;
        ensure!(status.success(), "the daemon failed: {status}");
        self.send(packets)?;
        self.daemon = Some(Daemon::start_in(
            self.topology.monitor(),
            &self.options,
            directories,
        )?);
        Ok(())
    }

    /// Kills the daemon, and starts another one on its state.
    pub fn restart_daemon(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("a daemon")?;
        self.daemon = Some(daemon.restart(libc::SIGKILL, &self.options)?);
        Ok(())
    }
}

/// A fleet. Programs end before the cluster does.
pub struct Fleet {
    pub nodes: Vec<FleetNode>,
    pub operator: Option<Ended>,
    pub cluster: Cluster,
    pub folder: TempDir,
    operator_config: PathBuf,
    pub webhook: String,
    /// The additional options of nodes and operator.
    pub options: FleetOptions,
}

/// The options of a fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetOptions {
    /// True if probes may go to pods.
    pub pods: bool,
    /// True if daemons know the addresses of Services.
    pub services: bool,
    /// True if the operator may find the daemons.
    pub rules: bool,
    pub daemons: DaemonOptions,
    /// Arguments of the operator.
    pub operator: Vec<String>,
    /// The compiler of the operator; by default the machine's.
    pub compiler: Option<String>,
}

impl Fleet {
    /// Starts a cluster with the chart's objects, this many nodes, their agents and the operator.
    pub fn new(count: usize) -> Result<Self> {
        Self::with(count, FleetOptions::default())
    }

    /// Starts the fleet with options.
    pub fn with(count: usize, options: FleetOptions) -> Result<Self> {
        let cluster =
            Cluster::start(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes/bin"))?;
        cluster.kubectl(&["create", "namespace", NAMESPACE], "")?;
        let folder = tempfile::tempdir()?;
        let [port] = ports()?;
        let webhook = format!("127.0.0.1:{port}");
        cluster.kubectl(
            &["apply", "-f", "-"],
            &chart(&webhook, folder.path(), &options)?,
        )?;
        cluster.kubectl(
            &[
                "wait",
                "--for",
                "condition=established",
                "crd",
                "--all",
                "--timeout",
                "60s",
            ],
            "",
        )?;
        let token =
            cluster.kubectl(&["-n", NAMESPACE, "create", "token", "twinprobe-fleet"], "")?;
        let operator_config = cluster.kubeconfig("operator", token.trim())?;
        let mut fleet = Self {
            nodes: Vec::new(),
            operator: None,
            cluster,
            folder,
            operator_config,
            webhook,
            options,
        };
        for at in 0..count {
            fleet.add_node(&format!("n{at}"))?;
        }
        fleet.start_operator()?;
        Ok(fleet)
    }

    /// Adds a node to the cluster; the first is the canary.
    fn add_node(&mut self, name: &str) -> Result<()> {
        let canary = if self.nodes.is_empty() { "yes" } else { "no" };
        let labels = json!({ "role": "edge", "canary": canary });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
        self.cluster
            .kubectl(&["create", "-f", "-"], &node.to_string())?;
        let token = self.token(name)?;
        std::fs::write(self.folder.path().join(format!("{name}.token")), token)?;
        let topology = Topology::new()?;
        let options = self.options.daemons.clone();
        let daemon = Some(Daemon::start_with(topology.monitor(), &options)?);
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        self.nodes.push(FleetNode {
            name: name.to_owned(),
            daemon,
            agent: None,
            options,
            generator,
            topology,
        });
        self.start_agent(self.nodes.len() - 1)
    }

    /// Returns the token of the agent in the pod of a node.
    pub fn token(&self, node: &str) -> Result<String> {
        let pod = format!("agent-{node}");
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod, "namespace": NAMESPACE },
            "spec": {
                "nodeName": node, "serviceAccountName": "twinprobe", "automountServiceAccountToken": false,
                "containers": [{ "name": "agent", "image": "none" }] },
        });
        self.cluster
            .kubectl(&["apply", "-f", "-"], &object.to_string())?;
        self.bound_token(node)
    }

    /// Returns a token of the agent in the pod of a node, which is there.
    pub fn bound_token(&self, node: &str) -> Result<String> {
        let pod = format!("agent-{node}");
        let bound = ["--bound-object-kind", "Pod", "--bound-object-name", &pod];
        let create = [
            &["-n", NAMESPACE, "create", "token", "twinprobe"][..],
            &bound,
        ]
        .concat();
        Ok(self.cluster.kubectl(&create, "")?.trim().to_owned())
    }

    pub fn start_operator(&mut self) -> Result<()> {
        let mut command = Command::new(helper("twinprobe-operator")?);
        command
            .args(["run", "--namespace", NAMESPACE])
            .env("KUBECONFIG", &self.operator_config);
        let at = |name: &str| self.folder.path().join(name);
        command.args(["--webhook", &self.webhook]);
        command
            .arg("--webhook-cert")
            .arg(at("tls.crt"))
            .arg("--webhook-key")
            .arg(at("tls.key"));
        command.args(&self.options.operator);
        command.envs(
            self.options
                .compiler
                .iter()
                .map(|clang| ("TWINPROBE_CLANG", clang)),
        );
        self.operator = Some(started(
            &mut command,
            &self.folder.path().join("operator.log"),
        )?);
        Ok(())
    }

    pub fn start_agent(&mut self, at: usize) -> Result<()> {
        let mut command = self.agent(at)?;
        let log = self
            .folder
            .path()
            .join(format!("{}.log", self.nodes[at].name));
        self.nodes[at].agent = Some(started(&mut command, &log)?);
        Ok(())
    }

    /// The command that starts the agent of a node.
    pub fn agent(&self, at: usize) -> Result<Command> {
        let node = &self.nodes[at];
        let Address::Unix(socket) = node.daemon().address() else {
            panic!("a daemon with a socket")
        };
        let file = |end: &str| self.folder.path().join(format!("{}.{end}", node.name));
        let mut command = Command::new(helper("twinprobe-operator")?);
        command.args(["node", "--jitter", "100", "--node-name", &node.name]);
        command
            .arg("--api-server")
            .arg(self.cluster.url())
            .arg("--api-ca")
            .arg(self.cluster.authorities());
        command
            .arg("--api-token")
            .arg(file("token"))
            .arg("--state-dir")
            .arg(file("state"));
        command
            .arg("--daemon")
            .arg(format!("unix:{}", socket.display()));
        command.args(self.options.pods.then_some("--pods"));
        command.args(self.options.services.then_some("--services"));
        Ok(command)
    }

    /// Applies a probe whose help is `help`; `spec` replaces fields of its spec.
    pub fn apply(&self, help: &str, spec: &Value) -> Result<String> {
        self.cluster
            .kubectl(&["apply", "-f", "-"], &probe(help, spec).to_string())
    }

    /// Returns the probe's object.
    pub fn object(&self) -> Result<Value> {
        Ok(serde_json::from_str(
            &self
                .cluster
                .kubectl(&["get", "mp", "seen", "-o", "json"], "")?,
        )?)
    }

    /// Waits until the rollout of the object's present generation has reached this step.
    pub fn reaches(&self, step: &str) -> Result<Value> {
        wait_for(&format!("the step {step}"), PATIENCE, || self.is_at(step))
            .with_context(|| self.logs())
    }

    /// Returns the status if the rollout of the object's present generation has reached this step.
    pub fn is_at(&self, step: &str) -> Result<Value> {
        let object = self.object()?;
        let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        ensure!(is_current && object["status"]["step"] == step, "{object:#}");
        Ok(object["status"].clone())
    }

    /// Restarts processes that have ended, as kubelet does.
    pub fn revive(&mut self) -> Result<()> {
        let has_ended = |program: &mut Option<Ended>| match program {
            Some(Ended(child)) => Ok(child.try_wait()?.is_some()),
            None => anyhow::Ok(true),
        };
        if has_ended(&mut self.operator)? {
            self.start_operator()?;
        }
        for at in 0..self.nodes.len() {
            if has_ended(&mut self.nodes[at].agent)? {
                self.start_agent(at)?;
            }
        }
        Ok(())
    }

    /// The help text and the revision of the probe on each node. The revision is 0 on a node
    /// without the probe.
    pub fn found(&self) -> Vec<(String, u64)> {
        let probes = self.nodes.iter().map(|node| {
            let probe = &node.daemon().json("/v1/probes")["probes"][0];
            let help = probe["config"]["ingress"]["metrics"][0]["help"]
                .as_str()
                .unwrap_or_default();
            (
                help.to_owned(),
                probe["revision"].as_u64().unwrap_or_default(),
            )
        });
        probes.collect()
    }

    /// The Events about the probe: their reasons.
    pub fn events(&self) -> Result<Vec<String>> {
        let query = [
            "get",
            "events",
            "-o",
            "json",
            "--field-selector",
            "involvedObject.name=seen",
        ];
        let events: Value = serde_json::from_str(&self.cluster.kubectl(&query, "")?)?;
        let reasons = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["reason"].as_str());
        Ok(reasons.map(str::to_owned).collect())
    }

    /// Counts the objects of a kind.
    pub fn count(&self, kind: &str) -> Result<usize> {
        Ok(self
            .cluster
            .kubectl(&["get", kind, "-o", "name"], "")?
            .lines()
            .count())
    }

    /// The output of a program: `operator`, or the agent of a node.
    pub fn said(&self, program: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{program}.log")))
            .unwrap_or_default()
    }

    /// The last output of the programs.
    pub fn logs(&self) -> String {
        let programs =
            std::iter::once("operator").chain(self.nodes.iter().map(|node| node.name.as_str()));
        let read = |program: &str| {
            let said = self.said(program);
            let last: Vec<&str> = said.lines().rev().take(15).collect();
            format!(
                "{program}:\n{}",
                last.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        };
        programs.map(read).collect::<Vec<_>>().join("\n")
    }
}

/// Expects that the server has refused something for this reason.
pub fn refused(answer: Result<String>, reason: &str) -> Result<()> {
    let refusal = answer
        .err()
        .with_context(|| format!("the server took what it should refuse: {reason}"))?;
    ensure!(refusal.to_string().contains(reason), "{refusal}");
    Ok(())
}

/// The probe.
pub fn probe(help: &str, spec: &Value) -> Value {
    let metric =
        json!({ "name": "seen", "map": "seen", "snapshot": true, "init": true, "help": help });
    let mut probe = json!({
        "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringProbe", "metadata": { "name": "seen" },
        "spec": {
            "config": {
                "ingress": { "source": SOURCE, "metrics": [metric] },
                "window": { "interval": "200ms", "retain": 5000 } },
            "nodeSelector": { "role": "edge" },
            "attach": { "interfaces": ["mon0"] },
            "rollout": { "canary": { "canary": "yes" }, "steps": ["100%"], "timeout": "60s" } },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        match (value, &mut probe["spec"][field]) {
            (Value::Object(new), Value::Object(old)) => old.extend(new.clone()),
            (value, old) => *old = value.clone(),
        }
    }
    probe
}

/// Renders the chart with the fleet, whose webhook is at this address. Its certificate and key are
/// written into the folder, as kubelet does for the operator's pod.
fn chart(webhook: &str, folder: &Path, options: &FleetOptions) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let helm = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy-tools/bin/helm");
    let mut command = Command::new(&helm);
    command.args([
        "template",
        "twinprobe",
        "--include-crds",
        "--namespace",
        NAMESPACE,
    ]);
    command.args([
        "--set",
        "fleet.enabled=true",
        "--set",
        "fleet.webhook.ipAddresses={127.0.0.1}",
    ]);
    for (name, value) in [("pods", options.pods), ("services", options.services)] {
        command.arg("--set").arg(format!("fleet.{name}={value}"));
    }
    if options.rules {
        for set in [
            "api.enabled=true",
            "api.tls.secretName=tls",
            "api.accessSecret=access",
            "fleet.rules.enabled=true",
            "fleet.rules.tokenSecret=token",
            "fleet.rules.caSecret=ca",
        ] {
            command.args(["--set", set]);
        }
    }
    let output = command.arg(root.join("deploy/helm/twinprobe")).output();
    let output = output.with_context(|| helm.display().to_string())?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut objects = Vec::new();
    for document in yaml_serde::Deserializer::from_slice(&output.stdout) {
        let mut object = Value::deserialize(document)?;
        match object["kind"].as_str() {
            Some("Secret") => {
                for name in ["tls.crt", "tls.key"] {
                    let content = object["data"][name].as_str().context("a certificate")?;
                    std::fs::write(
                        folder.join(name),
                        base64::engine::general_purpose::STANDARD.decode(content)?,
                    )?;
                }
            }
            // There is no network of services here.
            Some("ValidatingWebhookConfiguration") => {
                let client = object["webhooks"][0]["clientConfig"]
                    .as_object_mut()
                    .context("a client")?;
                client.remove("service");
                client.insert(
                    "url".to_owned(),
                    format!("https://{webhook}/validate").into(),
                );
            }
            _ => {}
        }
        // Templates that render nothing leave empty documents.
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())
}
