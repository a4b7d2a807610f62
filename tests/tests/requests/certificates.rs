//! `serve --nodes-cert`: a daemon shows a certificate to nodes that ask for one.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::certificates::Certificates;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

/// A node with TLS, where only the certificate `client` has a role, and the file that names it.
struct CertifiedNode {
    daemon: Daemon,
    directory: tempfile::TempDir,
    files: Certificates,
    topology: Topology,
}

impl CertifiedNode {
    fn new() -> Result<Self> {
        let (directory, topology) = (tempfile::tempdir()?, Topology::new()?);
        topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
        let files = Certificates::new(directory.path())?;
        let path = |name: &str| directory.path().join(name);
        fs::write(path("roles"), "ip:127.0.0.1 collector\n")?;
        let options = DaemonOptions::default()
            .argument("--listen")
            .argument("127.0.0.1:0");
        let options = [
            ("--tls-cert", files.path("server")),
            ("--tls-key", files.path("server-key")),
            ("--client-ca", files.path("authority")),
            ("--client-roles", path("roles")),
            ("--audit-log", path("audit")),
        ]
        .into_iter()
        .fold(options, |options, (option, file)| {
            options.argument(option).argument(file)
        });
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mark = "listening on 127.0.0.1:";
        ensure!(daemon.wait_for_log(mark, PATIENCE), "it does not listen");
        let log = daemon.log();
        let port = log
            .split(mark)
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .context("a port")?;
        fs::write(path("nodes"), format!("gw-1 https://127.0.0.1:{port}\n"))?;
        daemon
            .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
            .expect(201);
        Ok(Self {
            daemon,
            directory,
            files,
            topology,
        })
    }

    /// Returns the description of the node by a daemon with these files.
    fn told(&self, shown: &[(&str, &str)]) -> Result<Value> {
        let options = DaemonOptions::default()
            .argument("--nodes")
            .argument(self.directory.path().join("nodes"));
        let add = |options: DaemonOptions, (option, name): &(&str, &str)| {
            options.argument(*option).argument(self.files.path(name))
        };
        let hub = Daemon::start_with(self.topology.monitor(), &shown.iter().fold(options, add))?;
        Ok(hub.json("/v1/nodes")["nodes"][0].take())
    }
}

#[test]
fn nodes_that_ask_for_a_certificate_get_that_of_the_daemon() -> Result<()> {
    let node = CertifiedNode::new()?;
    let authority = ("--nodes-ca", "authority");
    let told = node.told(&[
        authority,
        ("--nodes-cert", "client"),
        ("--nodes-key", "client-key"),
    ])?;
    ensure!(
        told["probes"][0]["name"] == "p" && told.get("problem").is_none(),
        "{told}"
    );
    let audit = fs::read_to_string(node.directory.path().join("audit"))?;
    ensure!(
        audit.contains(r#""who":"certificate:127.0.0.1""#),
        "{audit}"
    );
    let told = node.told(&[authority])?;
    ensure!(
        told["problem"]["status"] == 401,
        "without a certificate: {told}"
    );
    // By default the authorities of the system count, and these have not signed the node's
    // certificate.
    for shown in [&[("--nodes-ca", "other")][..], &[]] {
        let told = node.told(shown)?;
        let detail = told["problem"]["detail"].as_str().context("a problem")?;
        ensure!(
            detail.contains("certificate") && told["problem"].get("status").is_none(),
            "{told}"
        );
    }
    drop(node.daemon);
    Ok(())
}
