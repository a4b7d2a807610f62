//! Probes on the host's side of pods' interfaces, found by cgroups and processes. The parts of a
//! pod come in any order.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::pods::{CgroupDriver, ETH0, Pod};
use twinprobe_tests::sample::window;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::unit::as_under_the_unit;
use twinprobe_tests::wait::{PATIENCE, attachments, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, timed};

const PROBE: &str = "/v1/probes/p";
const PODS: &str = "/v1/pods";

/// Counts packets by the index of the interface where they came in.
const BY_INTERFACE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 256); __type(key, __u32); __type(value, __u64); } packets SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
	__u32 key = ctx->ingress_ifindex;
	__u64 one = 1, *value = bpf_map_lookup_elem(&packets, &key);
	if (value)
		__sync_fetch_and_add(value, 1);
	else
		bpf_map_update_elem(&packets, &key, &one, BPF_NOEXIST);
	return XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn config(pods: &Value) -> Value {
    json!({ "pods": pods, "ingress": { "source": BY_INTERFACE, "metrics": [window("packets", "packets")] } })
}

fn web() -> Value {
    json!({ "app": "web" })
}

fn team(name: &str) -> Value {
    json!({ "team": name })
}

fn tell(daemon: &Daemon, pods: &[Value]) -> Value {
    daemon
        .put(PODS, &json!({ "pods": pods }))
        .expect(200)
        .json()
}

fn send(pod: &Pod, packets: u64) -> Result<()> {
    Generator::new(pod.namespace(), ETH0, GeneratorOptions::default())?.send(packets)
}

fn index(daemon: &Daemon, pod: &Pod) -> Result<u64> {
    Ok(daemon.namespace().interface_index(&pod.interface)?.into())
}

/// Waits until the probe is attached to exactly these pods' interfaces. Returns its status.
fn attached(daemon: &Daemon, pods: &[&Pod]) -> Result<Value> {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.interface.as_str()).collect();
    names.sort_unstable();
    wait_for(&format!("attached to {names:?}"), PATIENCE, || {
        let status = daemon.json(PROBE);
        let all = status["interfaces"].as_array().into_iter().flatten();
        let here = all
            .filter(|at| at["state"] == "attached")
            .filter_map(|at| at["interface"].as_str());
        let mut here: Vec<&str> = here.collect();
        here.sort_unstable();
        ensure!(here == names, "{}", status["interfaces"]);
        Ok(status)
    })
}

/// Closes the window, and returns the packets of an interface.
fn counts(daemon: &Daemon) -> impl Fn(u64) -> u64 + use<> {
    let document = daemon.json(&format!("{PROBE}/metrics"));
    move |index| {
        let entries = document["ingress"]["packets"]["entries"]
            .as_array()
            .into_iter()
            .flatten();
        entries
            .filter(|entry| entry["key"] == index)
            .filter_map(|entry| entry["value"].as_u64())
            .sum()
    }
}

fn found(list: &Value, pod: &Pod) -> Value {
    let mut pods = list["pods"].as_array().into_iter().flatten();
    pods.find(|found| found["uid"] == *pod.uid)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn a_probe_follows_the_pods_of_a_team_as_they_come_and_go() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let selector = json!({ "labels": web(), "namespace_labels": team("blue") });
    let status = daemon.put(PROBE, &config(&selector)).expect(201).json();
    let words = "pods with app=web in namespaces with team=blue";
    assert_eq!(
        attachments(&status, words)[0]["reason"],
        format!("this node has no {words} yet")
    );

    // The table comes first, then cgroup and interface. The process comes last, and no event tells
    // of it.
    let mut first = Pod::new(CgroupDriver::Systemd)?;
    let list = tell(&daemon, &[first.entry(&web(), &team("blue"))]);
    assert_eq!(
        found(&list, &first)["reason"],
        "its cgroup is not there yet"
    );
    first.make_cgroup()?;
    first.connect(daemon.namespace())?;
    let pending = daemon.json(PROBE);
    assert_eq!(
        attachments(&pending, &format!("pod shop/{}", first.name)).len(),
        1,
        "{pending}"
    );
    first.run()?;
    let revision = attached(&daemon, &[&first])?["revision"].clone();
    send(&first, 1_000)?;

    // Everything exists before the table names the pod. The probe selects no pod of another team,
    // and no pod with other labels.
    let second = Pod::complete(CgroupDriver::Cgroupfs, daemon.namespace())?;
    let other_team = Pod::complete(CgroupDriver::Cgroupfs, daemon.namespace())?;
    let other_labels = Pod::complete(CgroupDriver::Systemd, daemon.namespace())?;
    let others = [
        other_team.entry(&web(), &team("red")),
        other_labels.entry(&json!({}), &team("blue")),
    ];
    let entries = [
        first.entry(&web(), &team("blue")),
        second.entry(&web(), &team("blue")),
    ];
    let list = tell(&daemon, &[&entries[..], &others].concat());
    for pod in [&first, &second, &other_team, &other_labels] {
        assert_eq!(
            found(&list, pod)["interfaces"],
            json!([pod.interface]),
            "{list}"
        );
    }
    attached(&daemon, &[&first, &second])?;
    for (pod, packets) in [
        (&first, 500),
        (&second, 700),
        (&other_team, 30),
        (&other_labels, 40),
    ] {
        send(pod, packets)?;
    }
    let (first_index, second_index) = (index(&daemon, &first)?, index(&daemon, &second)?);
    let count = counts(&daemon);
    assert_eq!(
        (count(first_index), count(second_index)),
        (1_500, 700),
        "nothing was reset, nothing lost"
    );
    for other in [&other_team, &other_labels] {
        assert_eq!(count(index(&daemon, other)?), 0);
    }

    // Documents name the pods of interfaces, in all formats, also the documents of other probes.
    let document = daemon.json(&format!("{PROBE}/metrics"));
    let names =
        |pod: &Pod| json!({ "namespace": "shop", "pod": pod.name, "workload": "Deployment/web" });
    let expected = json!({ &first.interface: names(&first), &second.interface: names(&second) });
    assert_eq!(document["pods"], expected, "{document}");
    let xml = daemon
        .get(&format!("{PROBE}/metrics?format=xml"))
        .expect(200)
        .text()
        .to_owned();
    let (interface, name) = (&first.interface, &first.name);
    let element = format!(
        r#"<pod interface="{interface}" namespace="shop" pod="{name}" workload="Deployment/web"/>"#
    );
    assert!(xml.contains(&element), "{xml}");
    let sample = format!(
        r#"twinprobe_interface_pod_info{{probe="p",interface="{interface}",namespace="shop",pod="{name}",workload="Deployment/web"}} 1"#
    );
    for path in ["/metrics", "/v1/probes/p/metrics?format=openmetrics"] {
        let page = daemon.get(path).expect(200).text().to_owned();
        assert!(page.lines().any(|line| line == sample), "{path}: {page}");
    }

    // The packets of a pod that ends are in the last window.
    send(&first, 90)?;
    send(&second, 80)?;
    tell(&daemon, &entries[1..]);
    let status = attached(&daemon, &[&second])?;
    assert_eq!(
        status["revision"], revision,
        "a change of the table deploys nothing"
    );
    send(&first, 1_000)?;
    send(&second, 5)?;
    let count = counts(&daemon);
    assert_eq!((count(first_index), count(second_index)), (90, 85));

    // An interface that disappears and comes again.
    second.disconnect()?;
    attached(&daemon, &[])?;
    second.connect(daemon.namespace())?;
    attached(&daemon, &[&second])?;
    send(&second, 60)?;
    assert_eq!(counts(&daemon)(index(&daemon, &second)?), 60);
    Ok(())
}

#[test]
fn a_pod_on_the_hosts_network_has_no_interface() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut pod = Pod::new(CgroupDriver::Systemd)?;
    pod.make_cgroup()?;
    pod.run_in(daemon.namespace())?;
    let list = tell(&daemon, &[pod.entry(&web(), &team("blue"))]);
    assert_eq!(found(&list, &pod)["interfaces"], json!([]));
    assert_eq!(found(&list, &pod)["reason"], "it uses the host's network");
    let status = daemon
        .put(PROBE, &config(&json!({ "labels": web() })))
        .expect(201)
        .json();
    let reason = attachments(&status, "pods with app=web")[0]["reason"].to_string();
    assert!(reason.contains("use the host's network"), "{reason}");
    Ok(())
}

#[test]
fn a_daemon_that_starts_again_knows_the_pods() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default();
    let mut daemon = Daemon::start(topology.monitor())?;
    let first = Pod::complete(CgroupDriver::Systemd, daemon.namespace())?;
    let second = Pod::complete(CgroupDriver::Cgroupfs, daemon.namespace())?;
    let mut later = Pod::new(CgroupDriver::Cgroupfs)?;
    let entries = [&first, &second, &later].map(|pod| pod.entry(&web(), &team("blue")));
    tell(&daemon, &entries);
    daemon.put(PROBE, &config(&json!({}))).expect(201);
    attached(&daemon, &[&first, &second])?;
    let indices = (index(&daemon, &first)?, index(&daemon, &second)?);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        send(&first, 100)?;
        daemon = daemon.restart(signal, &options)?;
        send(&first, 10)?;
        send(&second, 20)?;
        attached(&daemon, &[&first, &second])?;
        let count = counts(&daemon);
        assert_eq!(
            (count(indices.0), count(indices.1)),
            (110, 20),
            "after signal {signal}"
        );
    }
    // One pod ends and one starts while there is no daemon.
    let directories = daemon.kill()?;
    send(&second, 7)?;
    first.disconnect()?;
    later.make_cgroup()?;
    later.run()?;
    later.connect(topology.monitor())?;
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    attached(&daemon, &[&second, &later])?;
    send(&later, 33)?;
    let count = counts(&daemon);
    assert_eq!((count(index(&daemon, &later)?), count(indices.1)), (33, 7));
    Ok(())
}

/// A pod's process is another user's, and the daemon has neither CAP_SYS_PTRACE nor CAP_SYS_ADMIN.
#[test]
fn pods_take_no_capability_beyond_those_of_the_unit() -> Result<()> {
    let topology = Topology::new()?;
    let directory = tempfile::tempdir()?;
    let daemon = Daemon::start_with(
        topology.monitor(),
        &as_under_the_unit(directory.path(), &[])?,
    )?;
    let mut pod = Pod::new(CgroupDriver::Cgroupfs)?.of_user(65_534);
    pod.start(daemon.namespace())?;
    let list = tell(&daemon, &[pod.entry(&web(), &team("blue"))]);
    assert_eq!(
        found(&list, &pod)["interfaces"],
        json!([pod.interface]),
        "{list}"
    );
    daemon
        .put(PROBE, &config(&json!({ "labels": web() })))
        .expect(201);
    send(&pod, 100)?;
    assert_eq!(counts(&daemon)(index(&daemon, &pod)?), 100);
    Ok(())
}

#[test]
fn a_wrong_table_changes_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let pod = Pod::new(CgroupDriver::Systemd)?;
    let entry = pod.entry(&web(), &team("blue"));
    let before = tell(&daemon, std::slice::from_ref(&entry));
    let mut unknown = entry.clone();
    unknown["uuid"] = json!("x");
    let mut wrong = entry.clone();
    wrong["uid"] = json!("../x");
    for (table, status, field) in [
        (json!({ "pods": [unknown] }), 422, "pods[0].uuid"),
        (json!({ "pods": [entry, entry] }), 422, "pods[1].uid"),
        (json!({ "pods": [wrong] }), 422, "pods[0].uid"),
        (json!({ "pod": [] }), 422, "pod"),
        (json!({}), 422, "pods"),
        (json!([]), 422, "an object"),
    ] {
        let answer = daemon.put(PODS, &table).expect(status);
        assert!(answer.text().contains(field), "{field}: {}", answer.text());
    }
    assert_eq!(daemon.json(PODS), before);
    let both = json!({ "interface": "mon0", "pods": {}, "netns": "/run/netns/x", "per_interface": true, "ingress": { "source": "x" } });
    let answer = daemon.put(PROBE, &both).expect(422);
    for field in [
        "pods and interface exclude",
        "own network namespace",
        "each must have its name here",
    ] {
        assert!(answer.text().contains(field), "{field}: {}", answer.text());
    }
    Ok(())
}

#[timed("a probe is on a pod's interface within a second of the last part of the pod")]
fn a_pod_is_seen_within_a_second() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut pod = Pod::new(CgroupDriver::Systemd)?;
    tell(&daemon, &[pod.entry(&web(), &team("blue"))]);
    daemon
        .put(PROBE, &config(&json!({ "labels": web() })))
        .expect(201);
    pod.make_cgroup()?;
    pod.connect(daemon.namespace())?;
    std::thread::sleep(Duration::from_secs(5));
    pod.run()?;
    let begun = Instant::now();
    attached(&daemon, &[&pod])?;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    Ok(())
}
