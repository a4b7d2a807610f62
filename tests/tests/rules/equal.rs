//! A trial over a capture has the same windows that the daemon makes if the same packets reach an
//! interface.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::attacks::{RuleScene, scenes};
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::{Daemon, Topology, probes};

use crate::library::trial;
use crate::scene::wait_for_rule;

/// A rule of the library, and the numbers of its probe that are compared: sums over windows, and
/// numbers that each window resets.
const NUMBERS: [(&str, &str); 4] = [
    (
        "syn-flood",
        "{{sum(ingress.tcp_flags, 'SYN', 'packets_total')}} {{sum(ingress.tcp_flags, 'bytes_total')}} \
         {{sum(ingress.tcp_handshakes, 'begun_total')}} {{sum(ingress.tcp_handshakes, 'completed_total')}} \
         {{count(ingress.tcp_handshakes)}} {{top(ingress.tcp_handshakes, 'begun_total').address}}",
    ),
    (
        "port-scan",
        "{{count(ingress.scan)}} {{sum(ingress.scan, 'tries')}} {{max(ingress.scan, 'ports.different')}} \
         {{max(ingress.scan, 'addresses.different')}}",
    ),
    (
        "new-talkers",
        "{{count(ingress.talker)}} {{sum(ingress.talker, 'packets')}} {{sum(ingress.talkers_all, 'bytes')}}",
    ),
    (
        "retransmissions",
        "{{sum(ingress.tcp, 'segments_total')}} {{sum(ingress.tcp, 'retransmitted_segments_total')}} \
         {{sum(ingress.tcp, 'out_of_order_segments_total')}} {{count(ingress.tcp_flow)}}",
    ),
];

/// The windows at which the rule fires: every second one, since the firing must end between them.
const WINDOWS: [u64; 5] = [1, 3, 5, 7, 9];

#[test]
fn a_trial_has_the_windows_that_live_packets_have() -> Result<()> {
    let topology = Topology::new()?;
    // With GRO several packets would come as one.
    topology
        .monitor()
        .run("ethtool", &["-K", "mon0", "gro", "off"])?;
    let daemon = Daemon::start(topology.monitor())?;
    let socket = topology
        .generator()
        .enter(|| PacketSocket::open("gen0"))??;
    let scenes = scenes();
    for (name, numbers) in NUMBERS {
        let scene = scenes
            .iter()
            .find(|scene| scene.rule == name)
            .context("a scene")?;
        compare(&daemon, &socket, scene, numbers).map_err(|error| error.context(name))?;
    }
    Ok(())
}

fn compare(daemon: &Daemon, socket: &PacketSocket, scene: &RuleScene, numbers: &str) -> Result<()> {
    let mut rule: Value = yaml_serde::from_str(&crate::library::text(scene.rule)?)?;
    let fields = rule.as_object_mut().context("an object")?;
    fields.retain(|name, _| name == "watch");
    fields.insert(
        "when".to_owned(),
        json!(format!("window.seq in {WINDOWS:?}")),
    );
    fields.insert("cooldown".to_owned(), json!("0s"));
    fields.insert("do".to_owned(), json!([{ "mark": numbers }]));
    let watch = rule["watch"].as_str().context("a probe")?.to_owned();
    let report = trial(daemon, &rule.to_string(), &scene.attack, "")
        .expect(200)
        .json();
    let expected: Vec<_> = report["decisions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|decision| decision["decision"] == "fire")
        .map(|decision| json!([decision["window"], decision["do"][0]["mark"]]))
        .collect();
    ensure!(expected.len() == WINDOWS.len(), "{report}");
    daemon
        .put(
            &format!("/v1/probes/{watch}"),
            &probes::configuration(&watch, "mon0")?,
        )
        .expect(201);
    daemon.put("/v1/rules/numbers", &rule).expect(201);
    for second in 0..9 {
        for (_, bytes) in scene.attack.received.iter().filter(|(of, _)| *of == second) {
            socket.send(bytes)?;
        }
        daemon
            .request("POST", &format!("/v1/probes/{watch}/windows"), &[], b"")
            .expect(201);
    }
    let status = wait_for_rule(daemon, "numbers", |status| {
        status["window"] == 9 && status["firings"][WINDOWS.len() - 1]["done"].is_string()
    })?;
    let firings = status["firings"].as_array().into_iter().flatten();
    let found: Vec<_> = firings
        .map(|firing| json!([firing["window"], firing["do"][0]["mark"]]))
        .collect();
    ensure!(found == expected, "live {found:?}, tried {expected:?}");
    daemon.delete("/v1/rules/numbers").expect(204);
    daemon.delete(&format!("/v1/probes/{watch}")).expect(204);
    Ok(())
}
