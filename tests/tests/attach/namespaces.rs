//! Probes in other namespaces than the daemon's: paths that never answer, filters that outlive a
//! daemon, events.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::attachments::{PROBES, Three, filters, tc_attach, tc_counter};
use twinprobe_tests::http;
use twinprobe_tests::silent::Silent;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for, wait_for_attachment};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, KernelObjects, NamespaceLink, Topology};

fn status(daemon: &Daemon, probe: &str) -> Value {
    daemon.json(&format!("/v1/probes/{probe}"))
}

/// A request is refused while interfaces can't be listed, instead of detaching the probe.
#[test]
fn a_replacement_without_a_list_of_interfaces_changes_nothing() -> Result<()> {
    let mut three = Three::new()?;
    let monitor = three.topology.monitor().clone();
    let daemon = Daemon::start(three.topology.sink())?;
    let names = Directories::new()?;
    let link = NamespaceLink::new(monitor.path())?;
    let path = link.path();
    three.deploy(&daemon, Some(path));
    three.counted(&daemon)?;
    let hole = names.temporary().join("hole");
    let silent = Silent::mount(&hole)?;
    link.lead_to(&hole.join("netns"))?;
    for (config, (probe, ..)) in Three::configs(Some(path)).iter_mut().zip(PROBES) {
        config["wait_for_interface"] = json!(true);
        let refused = daemon
            .put(&format!("/v1/probes/{probe}"), config)
            .expect(422)
            .json();
        ensure!(refused.to_string().contains("can't be listed"), "{refused}");
        ensure!(status(&daemon, probe)["revision"] == 1, "{probe}");
    }
    three.counted(&daemon)?;
    // The next daemon does not treat a failed listing as an empty one, either.
    let before = Three::counts(&daemon);
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    three.generator.send(10)?;
    assert_eq!(Three::counts(&daemon), before.map(|count| count + 10));
    drop(silent);
    link.lead_to(monitor.path())?;
    for (probe, _, interface) in PROBES {
        wait_for_attachment(&daemon, probe, interface, "attached", PATIENCE)?;
        daemon.delete(&format!("/v1/probes/{probe}")).expect(204);
    }
    three.generator.send(10)?;
    wait_for("nothing is dropped", PATIENCE, || {
        let left = KernelObjects::pinned(daemon.directories().bpffs())?.counts();
        // The two maps are the epochs and their clocks.
        ensure!(
            left == [("program", 0), ("map", 2), ("link", 0)],
            "pinned are {left:?}"
        );
        Ok(())
    })
}

/// A path that never answers causes an error for requests that need it, and delays no other
/// request.
#[test]
fn a_namespace_that_does_not_answer_holds_up_nobody() -> Result<()> {
    let mut three = Three::new()?;
    let daemon = Daemon::start(three.topology.monitor())?;
    three.deploy(&daemon, None);
    let names = Directories::new()?;
    let hole = names.temporary().join("hole");
    let silent = Silent::mount(&hole)?;
    let link = NamespaceLink::new(&hole.join("netns"))?;
    std::thread::scope(|scope| -> Result<()> {
        let waiting: Vec<_> = Three::configs(Some(link.path()))
            .into_iter()
            .enumerate()
            .map(|(number, mut config)| {
                let address = daemon.address();
                scope.spawn(move || {
                    config["wait_for_interface"] = json!(number == 1);
                    let path = format!("/v1/probes/silent{number}");
                    http::request(&address, "PUT", &path, &[], config.to_string().as_bytes())
                })
            })
            .collect();
        let result = (|| {
            let mut rounds = 0;
            while rounds < 50 && waiting.iter().any(|waits| !waits.is_finished()) {
                three.counted(&daemon)?;
                daemon.get("/v1/probes").expect(200);
                // An answer that arrives while other requests still wait has not waited for them.
                rounds += u32::from(waiting.iter().any(|waits| !waits.is_finished()));
            }
            ensure!(rounds > 0, "nothing was answered while others waited");
            anyhow::Ok(())
        })();
        // Dropping the file system ends the calls that wait for it.
        drop(silent);
        let answers: Vec<_> = waiting.into_iter().map(|waits| waits.join()).collect();
        result?;
        for answer in answers {
            let answer = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            ensure!(answer.status == 422, "{}", answer.text());
            ensure!(
                answer.text().contains("has not answered"),
                "{}",
                answer.text()
            );
        }
        Ok(())
    })
}

/// Filters that a daemon made in another namespace before it died are kept for their probe or
/// removed.
#[test]
fn filters_in_another_namespace_go_with_their_probe() -> Result<()> {
    let mut three = Three::new()?;
    let monitor = three.topology.monitor().clone();
    let options = tc_attach("clsact");
    let baseline = KernelObjects::now()?;
    let mut daemon = Daemon::start_with(three.topology.sink(), &options)?;
    three.deploy(&daemon, Some(monitor.path()));
    // The fourth probe is at hooks that none of the three uses.
    let fourth = json!({
        "netns": monitor.path(), "interfaces": ["mon0", "mon1"],
        "ingress": { "hook": "tc", "source": tc_counter("0"), "position": "last",
            "metrics": [{ "name": "packets", "map": "packets" }] },
        "egress": { "source": tc_counter("0"), "position": "last",
            "metrics": [{ "name": "packets", "map": "packets" }] }
    });
    let places = [
        ("mon0", "ingress", 1),
        ("mon0", "egress", 0),
        ("mon1", "ingress", 0),
        ("mon1", "egress", 1),
    ];
    let steps = [
        ("linked:1", true),
        ("linked:4", true),
        ("attached:2", true),
        ("switched", true),
        ("forgotten", false),
        ("detaching:1", false),
        ("detaching:3", false),
        ("detached", false),
    ];
    for (step, create) in steps {
        if !create {
            daemon.put("/v1/probes/fourth", &fourth).expect(201);
        }
        let dying = options.clone().environment("TWINPROBE_CRASH_AT", step);
        daemon = daemon.restart(libc::SIGKILL, &dying)?;
        let (method, body) = if create {
            ("PUT", fourth.to_string())
        } else {
            ("DELETE", String::new())
        };
        let answer = http::request(
            &daemon.address(),
            method,
            "/v1/probes/fourth",
            &[],
            body.as_bytes(),
        );
        ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
        daemon = Daemon::start_in(three.topology.sink(), &options, daemon.kill()?)?;
        daemon.get("/v1/probes/fourth").expect(404);
        for (interface, direction, expected) in places {
            let found = filters(&monitor, interface, direction)?;
            ensure!(
                found == expected,
                "{step}: {found} filters at {direction} of {interface}"
            );
        }
        three.counted(&daemon).context(step)?;
        baseline
            .wait_for_only(daemon.directories().bpffs(), daemon.pid())
            .context(step)?;
    }
    Ok(())
}

/// Three namespaces each have an interface with the same index. An event names the interface in the
/// namespace of its probe.
#[test]
fn events_name_interfaces_of_their_namespace() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let source = "#include <linux/bpf.h>\n\
        #include <bpf/bpf_helpers.h>\n\
        struct event { __u32 from __attribute__((btf_decl_tag(\"ifindex\"))); };\n\
        struct event *unused __attribute__((unused));\n\
        struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } events SEC(\".maps\");\n\
        SEC(\"xdp\") int count(struct xdp_md *ctx)\n\
        {\n\
        \tstruct event event = { .from = ctx->ingress_ifindex };\n\
        \tbpf_ringbuf_output(&events, &event, sizeof(event), 0);\n\
        \treturn XDP_PASS;\n\
        }\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let namespaces = [topology.monitor(), topology.sink(), topology.generator()];
    for (n, namespace) in namespaces.into_iter().enumerate() {
        let (name, peer) = (format!("same{n}"), format!("peer{n}"));
        let create = [
            "link", "add", &name, "index", "4321", "type", "veth", "peer", "name", &peer,
        ];
        namespace.run("ip", &create)?;
        for interface in [&name, &peer] {
            namespace.run("ip", &["link", "set", interface, "arp", "off"])?;
            namespace.run("ip", &["link", "set", interface, "up"])?;
        }
        let mut config = json!({ "interface": name, "ingress": {
            "source": source, "metrics": [{ "name": "events", "map": "events", "type": "struct event" }]
        } });
        if n > 0 {
            config["netns"] = json!(namespace.path());
        }
        daemon.put(&format!("/v1/probes/p{n}"), &config).expect(201);
    }
    for (n, namespace) in namespaces.into_iter().enumerate() {
        let mut stream = Stream::open(
            &daemon,
            &format!("/v1/probes/p{n}/events"),
            "application/x-ndjson",
        )?;
        Generator::new(namespace, &format!("peer{n}"), GeneratorOptions::default())?.send(1)?;
        let event = stream.json()?;
        assert_eq!(event["event"]["from"], json!(format!("same{n}")), "{event}");
    }
    Ok(())
}
