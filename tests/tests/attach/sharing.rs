//! Interfaces with the same probes have the same dispatcher program: otherwise the kernel waits for
//! a grace period for each of them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::attachments::{dispatcher, tc_attach, tc_counter};
use twinprobe_tests::sample::{total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for_attachment};
use twinprobe_tests::{Daemon, KernelObjects, Topology, veth_pair};

fn config(interfaces: &str, hook: &str) -> Value {
    let source = if hook == "xdp" {
        xdp_counter("XDP_PASS")
    } else {
        tc_counter("-1")
    };
    let metrics = json!([{ "name": "packets", "map": "packets" }]);
    json!({ "interfaces": [interfaces], "ingress": { "hook": hook, "source": source, "metrics": metrics } })
}

/// Returns the id of the program that packets meet at the ingress of each interface.
fn programs(
    daemon: &Daemon,
    topology: &Topology,
    hook: &str,
    interfaces: &[&str],
) -> Result<Vec<u64>> {
    let hook = if hook == "xdp" { hook } else { "tc-ingress" };
    let of = |interface: &&str| {
        let pins = dispatcher(
            daemon.directories().bpffs(),
            topology.monitor(),
            interface,
            hook,
        )?;
        for entry in std::fs::read_dir(&pins)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let (kind, field) = match name.as_str() {
                "clsact" => ("prog", "id"),
                name if name.starts_with("link_") => ("link", "prog_id"),
                _ => continue,
            };
            let shown = Command::new("bpftool")
                .args(["-j", kind, "show", "pinned"])
                .arg(&path)
                .output()?;
            let shown: Value = serde_json::from_slice(&shown.stdout)?;
            return shown[field]
                .as_u64()
                .with_context(|| format!("{interface}: {shown}"));
        }
        anyhow::bail!("nothing is attached to {interface}")
    };
    interfaces.iter().map(of).collect()
}

/// One interface of three has a further probe for a while. The probe at all of them is replaced,
/// adopted after a crash, and follows a later interface.
#[test]
fn interfaces_with_the_same_probes_have_the_same_program() -> Result<()> {
    for (hook, method) in [("xdp", "auto"), ("tc", "auto"), ("tc", "clsact")] {
        let topology = Topology::new()?;
        veth_pair(topology.generator(), "gen2", topology.monitor(), "mon2")?;
        let baseline = KernelObjects::now()?;
        let mut daemon = Daemon::start_with(topology.monitor(), &tc_attach(method))?;
        let count = |daemon: &Daemon, name: &str| {
            total(
                &daemon.json(&format!("/v1/probes/{name}/metrics")),
                "ingress",
                "packets",
            )
        };
        let mut at_all = 0;
        let mut send = |interface: &str| -> Result<()> {
            at_all += 10;
            Generator::new(topology.generator(), interface, GeneratorOptions::default())?
                .send(10)?;
            Ok(())
        };
        let three = ["mon0", "mon1", "mon2"];
        let mut all = config("mon*", hook);
        daemon.put("/v1/probes/all", &all).expect(201);
        let first = programs(&daemon, &topology, hook, &three)?;
        ensure!(first.iter().all(|id| *id == first[0]), "{hook}: {first:?}");

        daemon
            .put("/v1/probes/one", &config("mon2", hook))
            .expect(201);
        let other = programs(&daemon, &topology, hook, &three)?;
        ensure!(
            other[..2] == first[..2] && other[2] != first[2],
            "{hook}: {first:?}, {other:?}"
        );
        send("gen0")?;
        send("gen2")?;
        ensure!(
            (count(&daemon, "all"), count(&daemon, "one")) == (20, 10),
            "{hook}"
        );

        all["ingress"]["source"] = json!(format!(
            "{}// again",
            all["ingress"]["source"].as_str().context("C")?
        ));
        daemon.put("/v1/probes/all", &all).expect(200);
        let replaced = programs(&daemon, &topology, hook, &three)?;
        ensure!(
            replaced[0] == replaced[1] && replaced[0] != first[0],
            "{hook}: {replaced:?}"
        );
        daemon = daemon.restart(libc::SIGKILL, &tc_attach(method))?;
        ensure!(
            programs(&daemon, &topology, hook, &three)? == replaced,
            "{hook}: an adopted program goes on"
        );
        send("gen0")?;
        send("gen2")?;
        ensure!(
            (count(&daemon, "all"), count(&daemon, "one")) == (40, 20),
            "{hook}"
        );

        daemon.delete("/v1/probes/one").expect(204);
        veth_pair(topology.generator(), "gen3", topology.monitor(), "mon3")?;
        wait_for_attachment(&daemon, "all", "mon3", "attached", PATIENCE)?;
        let again = programs(&daemon, &topology, hook, &["mon0", "mon1", "mon2", "mon3"])?;
        ensure!(
            again.iter().all(|id| *id == replaced[0]),
            "{hook}: {again:?}, {replaced:?}"
        );
        for interface in ["gen0", "gen2", "gen3"] {
            send(interface)?;
        }
        ensure!(count(&daemon, "all") == at_all, "{hook}");
        daemon.delete("/v1/probes/all").expect(204);
        baseline.wait_for_only(daemon.directories().bpffs(), daemon.pid())?;
    }
    Ok(())
}
