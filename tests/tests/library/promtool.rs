//! The verdict of Prometheus' own linter about the families that the ready-made probes export.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::probes;
use twinprobe_tests::{Daemon, Topology};

use crate::tools::{shown, tools};

/// The `Accept` that asks for the text format of Prometheus.
pub const TEXT: (&str, &str) = ("Accept", "text/plain");

/// Fails unless `promtool check metrics` has nothing to say about a page, where there is a
/// promtool.
pub fn lint(page: &str) -> Result<()> {
    ensure!(
        page.contains("# TYPE ") && !page.contains(" untyped\n"),
        "{page}"
    );
    let Some(bin) = tools(&["promtool"])? else {
        return Ok(());
    };
    let mut command = Command::new(bin.join("promtool"));
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child
        .stdin
        .take()
        .context("a pipe")?
        .write_all(page.as_bytes())?;
    let output = child.wait_with_output()?;
    let said =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    ensure!(said.concat().is_empty(), "{}", shown(&output));
    Ok(())
}

#[test]
fn the_linter_has_nothing_to_say_of_the_page() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = probes::configuration("handshake-latency", "mon0")?;
    daemon
        .put("/v1/probes/handshake-latency", &config)
        .expect(201);
    let page = daemon.request("GET", "/metrics", &[TEXT], b"").expect(200);
    ensure!(page.header("content-type") == Some("text/plain; version=0.0.4; charset=utf-8"));
    for side in ["server", "client"] {
        let family = format!("net_tcp_handshake_{side}_seconds");
        ensure!(
            page.text()
                .contains(&format!("# TYPE {family} histogram\n")),
            "{}",
            page.text()
        );
        ensure!(
            page.text().contains(&format!("{family}_bucket{{"))
                && page.text().contains("le=\"3e-09\"}")
        );
        let labels = "{probe=\"handshake-latency\",direction=\"ingress\",interface=\"mon0\"}";
        for ending in ["_count", "_sum"] {
            let sample = format!("\n{family}{ending}{labels} 0\n");
            ensure!(page.text().contains(&sample), "{sample}: {}", page.text());
        }
    }
    lint(page.text())
}
