//! The limits of requests: each refusal names the option, the limit and the requested amount, and
//! changes nothing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http::Address;
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{EndOnDrop, PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, timed};

/// Returns a source with arrays of these names and numbers of `__u64`, and with `code` for each
/// packet.
fn arrays(maps: &[(&str, u64)], code: &str) -> String {
    let mut source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n".to_owned();
    for (name, entries) in maps {
        let _ = writeln!(
            source,
            "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, {entries}); __type(key, __u32); \
             __type(value, __u64); }} {name} SEC(\".maps\");"
        );
    }
    source
        + "SEC(\"xdp\") int count(struct xdp_md *ctx) {\n__u32 key = 0;\n"
        + code
        + "\nreturn XDP_PASS;\n}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n"
}

/// Returns a probe with one array of this many bytes, read as a window or live.
fn sized(bytes: u64, snapshot: bool) -> Value {
    let mut metric = window("m", "m");
    if !snapshot {
        metric = json!({ "name": "m", "map": "m" });
    }
    let code = "__u64 *value = bpf_map_lookup_elem(&m, &key);\nif (value) *value += 1;";
    json!({ "interface": "mon0", "ingress": { "source": arrays(&[("m", bytes / 8)], code), "metrics": [metric] } })
}

struct Scene {
    topology: Topology,
    daemon: Daemon,
}

impl Scene {
    fn new(arguments: &[&str]) -> Result<Self> {
        let topology = Topology::new()?;
        let options = arguments
            .iter()
            .fold(DaemonOptions::default(), |options, argument| {
                options.argument(*argument)
            });
        Ok(Self {
            daemon: Daemon::start_with(topology.monitor(), &options)?,
            topology,
        })
    }

    fn put(&self, name: &str, config: &Value, status: u16) {
        self.daemon
            .put(&format!("/v1/probes/{name}"), config)
            .expect(status);
    }

    /// Checks that a PUT and a validation are refused with all of these words, and that the PUT has
    /// changed nothing.
    #[track_caller]
    fn refused(&self, config: &Value, words: &[&str]) {
        self.refused_put("refused", config, words);
        let answer = self
            .daemon
            .post("/v1/validate", config)
            .expect(422)
            .json()
            .to_string();
        words
            .iter()
            .for_each(|word| assert!(answer.contains(word), "{word} is not in {answer}"));
    }

    #[track_caller]
    fn refused_put(&self, name: &str, config: &Value, words: &[&str]) {
        let before = self.daemon.json("/v1/probes");
        let answer = self
            .daemon
            .put(&format!("/v1/probes/{name}"), config)
            .expect(422)
            .json();
        let errors = answer["errors"].to_string();
        words
            .iter()
            .for_each(|word| assert!(errors.contains(word), "{word} is not in {answer}"));
        assert_eq!(self.daemon.json("/v1/probes"), before);
    }
}

#[test]
fn sources_maps_and_programs_are_limited_and_the_option_is_named() -> Result<()> {
    let options = [
        "--max-source-bytes=5000",
        "--max-maps=4",
        "--max-map-bytes=100000,150000",
        "--max-programs=4",
        "--max-instructions=100",
    ];
    let scene = Scene::new(&options)?;
    let large = arrays(&[], "") + &"/".repeat(5000);
    let words = [
        "--max-source-bytes",
        "5000",
        &large.len().to_string(),
        "ingress.source",
    ];
    scene.refused(
        &json!({ "interface": "mon0", "ingress": { "source": large } }),
        &words,
    );

    let five = arrays(&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)], "");
    let five = json!({ "interface": "mon0", "ingress": { "source": five } });
    scene.refused(&five, &["--max-maps", "5 maps", "allows 4"]);
    let twins = arrays(&[("a", 1), ("b", 1), ("c", 1)], "");
    let twins = json!({ "interface": "mon0", "ingress": { "source": twins, "metrics": [window("a", "a"), window("b", "b")] } });
    scene.refused(&twins, &["--max-maps", "5 maps", "allows 4"]);

    // No kernel has this memory: the kernel's refusal would have other words.
    scene.refused(
        &sized(8 * 0xffff_fff0, false),
        &["--max-map-bytes", "100000", "map m of ingress", "for each"],
    );
    scene.refused(
        &sized(80_000, true),
        &[
            "--max-map-bytes",
            "100000",
            "for each",
            "twins counted twice",
        ],
    );
    let code = "#pragma unroll\nfor (int i = 0; i < 200; i++) asm volatile(\"r1 = 1\" ::: \"r1\");";
    let long = json!({ "interface": "mon0", "ingress": { "source": arrays(&[], code) } });
    scene.refused(
        &long,
        &["--max-instructions", "allows 100", "ingress.source"],
    );

    // A replacement reuses the room of the replaced probe, and a refused replacement takes no room.
    let live = sized(80_000, false);
    scene.put("a", &live, 201);
    for _ in 0..3 {
        scene.refused(&live, &["--max-map-bytes", "150000", "in all"]);
        scene.put("a", &live, 200);
    }
    scene.daemon.delete("/v1/probes/a").expect(204);
    scene.put("b", &live, 201);
    scene.daemon.delete("/v1/probes/b").expect(204);

    // Probes with windows have twins.
    let small = counter_config("mon0", "XDP_PASS");
    scene.put("c", &small, 201);
    scene.put("d", &small, 201);
    scene.refused(&small, &["--max-programs", "2 programs", "allows 4"]);
    scene.put("d", &small, 200);
    Ok(())
}

#[test]
fn the_number_of_probes_is_limited_and_what_has_run_goes_on() -> Result<()> {
    let mut scene = Scene::new(&["--max-probes=2"])?;
    let config = counter_config("mon0", "XDP_PASS");
    scene.put("a", &config, 201);
    scene.put("b", &config, 201);
    let words = ["--max-probes", "2 probes", "allows 2"];
    scene.refused_put("c", &config, &words);
    scene.put("a", &config, 200);
    scene.daemon.post("/v1/validate", &config).expect(200);
    scene.daemon.delete("/v1/probes/b").expect(204);
    // One of many clients that come at once gets the place.
    let statuses: Vec<u16> = std::thread::scope(|threads| {
        let put = |n: usize| {
            let (scene, config) = (&scene, &config);
            threads.spawn(move || {
                scene
                    .daemon
                    .put(&format!("/v1/probes/many{n}"), config)
                    .status
            })
        };
        (0..8)
            .map(put)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|put| put.join().unwrap_or(0))
            .collect()
    });
    assert_eq!(
        statuses.iter().filter(|status| **status == 201).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 422).count(),
        7,
        "{statuses:?}"
    );

    // Lower limits after a restart apply only to new requests.
    let lower = [
        "--max-probes=1",
        "--max-map-bytes=1",
        "--max-maps=0",
        "--max-source-bytes=1",
    ];
    let lower = lower
        .iter()
        .fold(DaemonOptions::default(), |options, argument| {
            options.argument(*argument)
        });
    scene.daemon = scene.daemon.restart(libc::SIGKILL, &lower)?;
    let mut generator = Generator::new(
        scene.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    generator.send(50)?;
    let listed = scene.daemon.json("/v1/probes");
    assert_eq!(listed["probes"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        total(
            &scene.daemon.json("/v1/probes/a/metrics"),
            "ingress",
            "packets"
        ),
        50
    );
    scene.refused_put("c", &config, &["--max-source-bytes"]);
    Ok(())
}

/// A verifier that works for long is stopped, and others are not.
#[test]
fn the_time_of_the_verifier_is_limited() -> Result<()> {
    let scene = Scene::new(&["--max-verification-ms=100"])?;
    // The verifier follows every round of this loop, for twins twice.
    let code = "__u64 *value = bpf_map_lookup_elem(&m, &key);\nint sum = 0;\n\
        for (int i = 0; i < 150000; i++) { asm volatile(\"\" : \"+r\"(sum), \"+r\"(i)); }\n\
        if (value) *value += sum;";
    let slow = json!({ "interface": "mon0", "ingress": { "source": arrays(&[("m", 1)], code), "metrics": [window("m", "m")] } });
    scene.refused(
        &slow,
        &["--max-verification-ms", "100 ms", "ingress.source"],
    );
    scene.put("p", &counter_config("mon0", "XDP_PASS"), 201);
    // With more time, the same program passes the verifier.
    let patient = Scene::new(&["--max-verification-ms=60000"])?;
    patient.put("p", &slow, 201);
    Ok(())
}

/// Sends a request and does not wait for the answer.
fn send(daemon: &Daemon, method: &str, path: &str, config: &Value) -> Result<UnixStream> {
    let Address::Unix(socket) = daemon.address() else {
        bail!("a daemon under test listens on a socket")
    };
    let mut stream = UnixStream::connect(socket)?;
    let body = config.to_string();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}

/// Returns a probe whose compilation takes all of the allowed time.
fn endless() -> Value {
    let doubled: String = (1..40).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "#define A{n} A{} A{}", n - 1, n - 1);
        text
    });
    json!({ "interface": "mon0", "ingress": { "source": format!("#define A0 x;\n{doubled}A39\n") } })
}

#[test]
fn too_many_compilations_wait_and_more_are_sent_away() -> Result<()> {
    let scene = Scene::new(&["--max-compilations=1"])?;
    scene.put("p", &counter_config("mon0", "XDP_PASS"), 201);
    let endless = endless();
    let streams = (0..24)
        .map(|_| send(&scene.daemon, "POST", "/v1/validate", &endless))
        .collect::<Result<Vec<_>>>()?;
    let busy = scene.daemon.post("/v1/validate", &endless).expect(429);
    let wait = busy
        .header("retry-after")
        .and_then(|seconds| seconds.parse::<u32>().ok());
    assert!(
        wait.is_some_and(|seconds| seconds > 0),
        "{:?}",
        busy.headers
    );
    assert!(
        busy.text().contains("--max-compilations"),
        "{}",
        busy.text()
    );
    // Requests that need no compiler are answered meanwhile, and clients that hang up hold no
    // place.
    scene.daemon.get("/v1/probes/p/metrics").expect(200);
    drop(streams);
    scene.put("p", &counter_config("mon0", "XDP_DROP"), 200);
    Ok(())
}

#[test]
fn too_many_loads_wait_and_more_are_sent_away() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let go_on = directory.path().join("go-on");
    let topology = Topology::new()?;
    let options = DaemonOptions::default()
        .argument("--max-loads=1")
        .environment("TWINPROBE_WAIT_AT", format!("loaded={}", go_on.display()));
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let config = counter_config("mon0", "XDP_PASS");
    let streams = (0..20)
        .map(|_| send(&daemon, "POST", "/v1/validate", &config))
        .collect::<Result<Vec<_>>>()?;
    let busy = daemon.post("/v1/validate", &config).expect(429);
    assert!(
        busy.header("retry-after").is_some() && busy.text().contains("--max-loads"),
        "{}",
        busy.text()
    );
    drop(streams);
    std::fs::write(&go_on, "")?;
    daemon.put("/v1/probes/p", &config).expect(201);
    Ok(())
}

/// Changes of one probe wait for each other. Only some may wait, because the last ones would wait
/// for hours.
#[test]
fn too_many_changes_of_a_probe_wait_and_more_are_sent_away() -> Result<()> {
    let scene = Scene::new(&["--max-compilations=2"])?;
    let streams = (0..24)
        .map(|_| send(&scene.daemon, "PUT", "/v1/probes/p", &endless()))
        .collect::<Result<Vec<_>>>()?;
    let config = counter_config("mon0", "XDP_PASS");
    let busy = scene.daemon.put("/v1/probes/p", &config).expect(429);
    assert!(
        busy.header("retry-after").is_some() && busy.text().contains("probe p"),
        "{}",
        busy.text()
    );
    scene.put("q", &config, 201);
    drop(streams);
    scene.put("p", &config, 201);
    Ok(())
}

/// Bodies that come slowly, or wait, take memory up to a bound.
#[test]
fn bodies_have_a_bound_together() -> Result<()> {
    const BODY: usize = 2 << 20;
    let scene = Scene::new(&[])?;
    let config = counter_config("mon0", "XDP_PASS");
    let Address::Unix(socket) = scene.daemon.address() else {
        bail!("a daemon under test listens on a socket")
    };
    let mut streams = Vec::new();
    for _ in 0..80 {
        let mut stream = UnixStream::connect(&socket)?;
        let length = BODY + 1;
        write!(
            stream,
            "PUT /v1/probes/p HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: \
             {length}\r\n\r\n"
        )?;
        stream.write_all(&vec![b' '; BODY])?;
        streams.push(stream);
    }
    let busy = scene.daemon.put("/v1/probes/p", &config).expect(429);
    assert!(
        busy.header("retry-after").is_some() && busy.text().contains("bodies"),
        "{}",
        busy.text()
    );
    assert!(
        scene.daemon.rss_kib() < 400 << 10,
        "{} KiB",
        scene.daemon.rss_kib()
    );
    scene.daemon.get("/v1/probes").expect(200);
    drop(streams);
    wait_for("room", PATIENCE, || {
        ensure!(
            scene.daemon.put("/v1/probes/p", &config).status == 201,
            "none"
        );
        Ok(())
    })
}

/// Clients that close windows continuously, many at a time, do not keep the clock from closing
/// them.
#[test]
fn a_crowd_of_readers_does_not_stop_the_clock() -> Result<()> {
    beside_a_crowd(|by_clock| {
        let before = by_clock();
        wait_for("windows that the clock closes", PATIENCE, || {
            let closed = by_clock() - before;
            ensure!(closed >= 10.0, "{closed}");
            Ok(())
        })
    })
}

#[timed("how many windows the clock closes in 3 s")]
fn a_crowd_of_readers_does_not_slow_the_clock() -> Result<()> {
    beside_a_crowd(|by_clock| {
        let (before, begun) = (by_clock(), Instant::now());
        std::thread::sleep(Duration::from_secs(3));
        let (closed, took) = (by_clock() - before, begun.elapsed());
        println!("{closed} windows in {took:?}");
        // In turn with the crowd the clock would get one of 65 turns.
        ensure!(
            closed > took.as_secs_f64() / 0.05 / 4.0,
            "the clock has closed {closed} windows in {took:?}"
        );
        Ok(())
    })
}

/// Runs `look`, with a function that counts the windows that the clock has closed, while 64 clients
/// close windows.
fn beside_a_crowd(look: impl FnOnce(&dyn Fn() -> f64) -> Result<()>) -> Result<()> {
    let scene = Scene::new(&[])?;
    let mut config = counter_config("mon0", "XDP_PASS");
    config["window"] = json!({ "interval": "50ms", "retain": 100 });
    scene.put("p", &config, 201);
    let by_clock = || {
        let page = scene.daemon.get("/metrics").expect(200).text().to_owned();
        let family = "twinprobe_windows_closed_total{probe=\"p\",by=\"schedule\"} ";
        page.lines()
            .find_map(|line| line.strip_prefix(family)?.parse::<f64>().ok())
            .unwrap_or_default()
    };
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _ended = EndOnDrop(&ended);
        for _ in 0..64 {
            threads.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    scene
                        .daemon
                        .request("POST", "/v1/probes/p/windows", &[], b"")
                        .expect(201);
                }
            });
        }
        look(&by_clock)
    })
}

/// Names in a source may be long: file names do not depend on them.
#[test]
fn maps_may_have_long_names() -> Result<()> {
    let mut scene = Scene::new(&[])?;
    for length in [16, 120, 260, 500] {
        let name = "m".repeat(length);
        let source = xdp_counter("XDP_PASS").replace("packets", &name);
        let metrics = [window("packets", &name)];
        let config =
            json!({ "interface": "mon0", "ingress": { "source": source, "metrics": metrics } });
        let probe = format!("p{length}");
        scene.put(&probe, &config, 201);
        let queue = arrays(
            &[],
            &format!("__u64 value = 1; bpf_map_push_elem(&{name}, &value, 0);"),
        );
        let map = format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 64); __type(value, __u64); }} {name} \
             SEC(\".maps\");\nSEC(\"xdp\")"
        );
        let queue = queue.replace("SEC(\"xdp\")", &map);
        let config = json!({ "interface": "mon0", "ingress": { "source": queue, "metrics": [{ "name": "q", "map": name }] } });
        scene.put(&format!("q{length}"), &config, 201);
    }
    scene.daemon = scene
        .daemon
        .restart(libc::SIGKILL, &DaemonOptions::default())?;
    Generator::new(
        scene.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?
    .send(20)?;
    for length in [16, 120, 260, 500] {
        let document = scene.daemon.json(&format!("/v1/probes/p{length}/metrics"));
        assert_eq!(total(&document, "ingress", "packets"), 20, "{length}");
        let document = scene.daemon.json(&format!("/v1/probes/q{length}/metrics"));
        assert_eq!(total(&document, "ingress", "q"), 20, "{length}");
    }
    Ok(())
}
