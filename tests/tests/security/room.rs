//! The bounds on data that requests store on the disk, and on the descriptors of probes: some room
//! is left to windows and to others.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, xdp_counter};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology};

/// The size of the disk in bytes.
const DISK: u64 = 12 << 20;

/// Returns a probe whose source has about this many bytes more than it needs, different ones for
/// each `number`.
fn large(bytes: usize, number: usize) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["source"] = json!(format!(
        "{}\n// {number}{}\n",
        xdp_counter("XDP_PASS"),
        "x".repeat(bytes)
    ));
    config
}

fn seq(daemon: &Daemon, probe: &str) -> u64 {
    daemon.json(&format!("/v1/probes/{probe}"))["windows"]["newest"]
        .as_u64()
        .unwrap_or(0)
}

fn revisions(daemon: &Daemon, probe: &str) -> Vec<u64> {
    let listed = daemon.json(&format!("/v1/probes/{probe}/revisions"));
    listed["revisions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["revision"].as_u64())
        .collect()
}

/// Configurations leave room to windows on a disk that they fill: of other probes, and of their
/// own.
#[test]
fn configurations_do_not_fill_the_disk() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::with_state_in_memory(DISK)?);
    let daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        Arc::clone(&directories),
    )?;
    let mut windows = counter_config("mon0", "XDP_PASS");
    windows["window"] = json!({ "interval": "20ms", "retain": 100 });
    daemon.put("/v1/probes/windows", &windows).expect(201);
    // First new probes until there is no room, and then replacements, whose revisions are stored as
    // well.
    let mut stored = 0;
    let refused = loop {
        let answer = daemon.put(&format!("/v1/probes/p{stored}"), &large(900_000, stored));
        if answer.status != 201 {
            break answer;
        }
        stored += 1;
    };
    ensure!((2..12).contains(&stored), "{stored} probes");
    for answer in [refused, daemon.put("/v1/probes/more", &large(900_000, 99))] {
        let problem = answer.expect(507).json();
        let message = problem["errors"][0]["message"]
            .as_str()
            .context("a message")?
            .to_owned();
        for word in [
            "No space left on device",
            "--keep-free-bytes",
            "stay free for windows",
        ] {
            ensure!(message.contains(word), "{word} is not in {problem}");
        }
    }
    daemon.get("/v1/probes/more").expect(404);
    for round in 0..3 {
        let status = daemon
            .put("/v1/probes/p0", &large(900_000, 100 + round))
            .status;
        ensure!([200, 507].contains(&status), "{status}");
    }

    let before = seq(&daemon, "windows");
    wait_for("windows", PATIENCE, || {
        let status = daemon.json("/v1/probes/windows");
        ensure!(status["windows"].get("error").is_none(), "{status}");
        ensure!(seq(&daemon, "windows") > before + 100, "{status}");
        Ok(())
    })?;
    // A removal makes room.
    daemon.delete("/v1/probes/p1").expect(204);
    daemon
        .put("/v1/probes/small", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    Ok(())
}

/// On a disk that others have filled, each change gets 507.
#[test]
fn a_full_disk_is_507_for_each_change() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::with_state_in_memory(8 << 20)?);
    let options = DaemonOptions::default().argument("--keep-free-bytes=0");
    let daemon = Daemon::start_in(topology.monitor(), &options, Arc::clone(&directories))?;
    daemon.put("/v1/probes/p", &large(1000, 0)).expect(201);
    daemon.put("/v1/probes/p", &large(1000, 1)).expect(200);
    directories.state_in_memory().fill()?;
    let before = daemon.json("/v1/probes");
    daemon.put("/v1/probes/p", &large(1000, 2)).expect(507);
    daemon.put("/v1/probes/q", &large(1000, 3)).expect(507);
    daemon
        .post("/v1/probes/p/rollback", &json!({ "revision": 1 }))
        .expect(507);
    daemon.post("/v1/probes/p/windows", &json!({})).expect(507);
    assert_eq!(
        daemon.json("/v1/probes")["probes"][0]["revision"],
        before["probes"][0]["revision"]
    );
    // The next daemon, which opens the files anew.
    let daemon = daemon.restart(libc::SIGKILL, &options)?;
    daemon.put("/v1/probes/p", &large(1000, 2)).expect(507);
    daemon.get("/v1/probes/p/metrics").expect(507);
    directories.state_in_memory().free()?;
    daemon.put("/v1/probes/p", &large(1000, 2)).expect(200);
    Ok(())
}

#[test]
fn the_oldest_revisions_go_and_what_is_too_large_is_refused() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default().argument("--max-stored-bytes=1000000,1500000");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    daemon.put("/v1/probes/a", &large(100_000, 0)).expect(201);
    for number in 1..12 {
        daemon
            .put("/v1/probes/a", &large(100_000, number))
            .expect(200);
    }
    let kept = revisions(&daemon, "a");
    ensure!(
        (4..=9).contains(&kept.len()) && kept.ends_with(&[11, 12]),
        "{kept:?}"
    );
    let warnings = daemon.json("/v1/probes/a")["warnings"].to_string();
    ensure!(
        warnings.contains("--max-stored-bytes") && warnings.contains("are dropped"),
        "{warnings}"
    );
    daemon
        .post("/v1/probes/a/rollback", &json!({ "revision": 1 }))
        .expect(404);
    daemon
        .post("/v1/probes/a/rollback", &json!({ "revision": kept[2] }))
        .expect(200);
    assert_eq!(daemon.json("/v1/probes/a")["revision"], 13);

    // The probe with the most revisions of all gives up its oldest.
    let before = revisions(&daemon, "a");
    daemon.put("/v1/probes/b", &large(300_000, 0)).expect(201);
    let after = revisions(&daemon, "a");
    ensure!(
        before.ends_with(&after) && after.len() < before.len() && after.last() == Some(&13),
        "{after:?}"
    );
    ensure!(revisions(&daemon, "b") == [1]);

    let listed = daemon.json("/v1/probes/a/revisions");
    for (name, config, words) in [
        ("a", large(600_000, 1), "1000000 for each"),
        ("c", large(450_000, 1), "1500000 in all"),
    ] {
        let answer = daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(507)
            .json();
        ensure!(
            answer["errors"].to_string().contains("--max-stored-bytes"),
            "{answer}"
        );
        ensure!(answer["errors"].to_string().contains(words), "{answer}");
    }
    assert_eq!(
        daemon.json("/v1/probes/a/revisions"),
        listed,
        "a refusal changes nothing"
    );
    let daemon = daemon.restart(libc::SIGKILL, &options)?;
    assert_eq!(daemon.json("/v1/probes/a/revisions"), listed);
    Ok(())
}

/// Returns a source with this many maps.
fn maps(count: usize) -> Value {
    let mut source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n".to_owned();
    for map in 0..count {
        let _ = writeln!(
            source,
            "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); }} \
             m{map} SEC(\".maps\");"
        );
    }
    source += "SEC(\"tc\") int count(struct __sk_buff *skb) { return 0; }\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
    json!({ "interface": "mon0", "ingress": { "hook": "tc", "source": source } })
}

/// Probes leave descriptors for connections, for windows and for the probes that exist.
#[test]
fn descriptors_are_counted() -> Result<()> {
    const LIMIT: u64 = 400;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut windows = counter_config("mon0", "XDP_PASS");
    windows["window"] = json!({ "interval": "50ms", "retain": 10 });
    daemon.put("/v1/probes/windows", &windows).expect(201);
    let pid = Pid::from_raw(i32::try_from(daemon.pid())?).context("a process")?;
    prlimit(
        Some(pid),
        Resource::Nofile,
        Rlimit {
            current: Some(LIMIT),
            maximum: Some(LIMIT),
        },
    )?;
    let mut deployed = 0;
    let refused = loop {
        let answer = daemon.put(&format!("/v1/probes/p{deployed}"), &maps(40));
        if answer.status != 201 {
            break answer;
        }
        deployed += 1;
    };
    let problem = refused.expect(422).json();
    ensure!(
        problem["errors"].to_string().contains("LimitNOFILE="),
        "{problem}"
    );
    ensure!((2..8).contains(&deployed), "{deployed} probes");
    // Some file descriptors are left: for clients, for windows, and for small probes of other
    // users.
    let before = seq(&daemon, "windows");
    let clients: Vec<_> = (0..20)
        .map(|_| std::os::unix::net::UnixStream::connect(daemon.directories().socket()))
        .collect::<std::io::Result<_>>()?;
    wait_for("windows", PATIENCE, || {
        ensure!(seq(&daemon, "windows") > before + 3);
        Ok(())
    })?;
    drop(clients);
    daemon.delete("/v1/probes/p0").expect(204);
    daemon.put("/v1/probes/p0", &maps(40)).expect(201);
    Ok(())
}
