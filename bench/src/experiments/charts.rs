//! Charts over many windows with many keys, and the largest keys of one window.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::Daemon;
use twinprobe_tests::measure::{Resident, Sample, processor_seconds};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};

use crate::frame::client::Client;
use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::{Table, met};

const PROBE: &str = "/v1/probes/talkers";
/// The size of the case for which there is a goal.
const WINDOWS: u64 = 360;
const KEYS: u32 = 30_000;
/// The goals: milliseconds, and bytes of an answer.
const TIME: f64 = 300.0;
const BYTES: usize = 200 << 10;

const SOURCE: &str = r#"
#include <twinprobe.h>

struct counts {
	__u64 packets;
	__u64 bytes;
	__u64 first TP_AS(ktime);
	__u64 last TP_AS(ktime);
};

#ifdef WIDE
TP_HASH(talkers, tp_ip, struct counts, 65536);
#else
struct few {
	__u64 packets;
	__u64 bytes;
};
typedef __u32 address TP_AS(ipv4);
TP_HASH(talkers, address, struct few, 65536);
#endif

TP_PROBE(count, packet)
{
	tp_ip source;
	__u64 now = tp_now();

	tp_parse(packet);
	source = tp_source(packet);
#ifdef WIDE
	struct counts *counts = tp_get(talkers, &source);
#else
	address key = 0;
	__builtin_memcpy(&key, (char *)&source + 12, sizeof(key));
	struct few *counts = tp_get(talkers, &key);
#endif
	if (counts) {
		tp_add(&counts->packets, 1);
		tp_add(&counts->bytes, tp_length(packet));
#ifdef WIDE
		tp_min(&counts->first, now);
		tp_max(&counts->last, now);
#endif
	}
	(void)now;
	return TP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
"#;

/// A kind of windows from which the daemon makes charts.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// True if each window begins at zero, false if the metric counts from the deployment on.
    resets: bool,
    /// True if keys have 16 bytes and values four numbers; false if keys have 4 bytes and values
    /// two numbers.
    is_wide: bool,
}

const CASES: [Case; 3] = [
    Case {
        name: "windows, 4 + 16 bytes",
        resets: true,
        is_wide: false,
    },
    Case {
        name: "sums, 4 + 16 bytes",
        resets: false,
        is_wide: false,
    },
    Case {
        name: "sums, 16 + 32 bytes",
        resets: false,
        is_wide: true,
    },
];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Charts",
        "How long does a chart over 360 windows with 30,000 keys each take, and how large is it?",
        "GET of `series` with the ten largest keys and of `series` with a key, over the Unix socket. Each window has all keys, and each \
         key has counted since the previous window. `top` is one window's ten largest entries. Medians with \
         intervals of 95 % (bootstrap).",
    );
    let mut table = Table::new(&[
        "metric",
        "windows",
        "keys",
        "stored, MB",
        "answer",
        "GETs",
        "ms",
        "max",
        "KiB",
        "daemon, processor ms",
        "memory, MiB more",
        "<= 300 ms, 200 KiB",
    ]);
    let mut claims = Vec::new();
    for case in CASES {
        let scene = Scene::new(bench, case)?;
        section.generator = Some(scene.generator.clone());
        let rounds = bench.rounds(20, 2);
        for (answer, path) in [
            (
                "chart, ten keys",
                format!("{PROBE}/series?metric=talkers&field=bytes&top=10"),
            ),
            (
                "chart, one key",
                format!("{PROBE}/series?metric=talkers&field=bytes&key=198.18.0.7"),
            ),
            (
                "window, ten entries",
                format!("{PROBE}/windows/{}?top=10&by=bytes", scene.windows),
            ),
        ] {
            let measured = scene.measure(&path, rounds)?;
            if answer.starts_with("chart") {
                scene.check(&path)?;
                claims.push((case.name, Estimate::of(&measured.ms).value, measured.bytes));
            }
            table.row(scene.cells(case, answer, &measured));
        }
    }
    section.tables.push(table);
    section.details = "`windows`: windows of a metric that each window resets. `sums`: windows of a metric that counts from the \
        beginning; they hold the changes. Then come the bytes of a key and of a value. `stored` is the room of all windows on the \
        disk, which is in the page cache. Memory is the growth of the daemon's peak. A check adds up the chart: it has each \
        packet once."
        .to_owned();
    section.meaning = "The daemon reads each window once, on all of up to four processors, and compares its digest, which takes most \
        of the time. It reads the one number of each entry that the chart is about, and nothing else of the value."
        .to_owned();
    let slowest = claims.iter().map(|(_, ms, _)| *ms).fold(0.0, f64::max);
    let largest = claims
        .iter()
        .map(|(.., bytes)| *bytes)
        .max()
        .unwrap_or_default();
    section.claims.push(Claim {
        claim: "a chart of 360 windows with 30,000 keys each",
        paper: "goal <= 300 ms, <= 200 KiB",
        ours: format!(
            "{}; at most {} KiB{}",
            claims
                .iter()
                .step_by(2)
                .map(|(name, ms, _)| format!("{name}: {ms:.0} ms"))
                .collect::<Vec<_>>()
                .join("; "),
            largest / 1024,
            if slowest <= TIME && largest <= BYTES {
                ""
            } else {
                " (missed)"
            }
        ),
        peers: String::new(),
    });
    Ok(section)
}

struct Scene {
    daemon: Daemon,
    generator: String,
    windows: u64,
    keys: u32,
    stored: u64,
    _site: Site,
}

struct Measured {
    ms: Sample,
    bytes: usize,
    processor_ms: f64,
    peak_kib: u64,
}

impl Scene {
    /// Closes windows, each with a packet of every key.
    fn new(bench: &Bench, case: Case) -> Result<Self> {
        let (windows, keys) = if bench.quick {
            (12, 1_000)
        } else {
            (WINDOWS, KEYS)
        };
        let site = Site::new(bench)?;
        let daemon = site.daemon(&["--retain-bytes", "4294967296"])?;
        let mut metric = json!({ "name": "talkers", "map": "talkers", "snapshot": true });
        if case.resets {
            metric["init"] = true.into();
        }
        if case.is_wide {
            metric["merge"] = json!({ "first": "min", "last": "max" });
        }
        let defines = if case.is_wide {
            json!({ "WIDE": "1" })
        } else {
            json!({})
        };
        let config = json!({
            "interface": site.interface(),
            "ingress": { "verdict": "enforce", "source": SOURCE, "defines": defines, "metrics": [metric] },
            "window": { "retain": windows, "retain_bytes": 2_u64 << 30 },
        });
        daemon.put(PROBE, &config).expect(201);
        let spread = Spread {
            addresses: keys,
            ports: 1,
            ..Spread::default()
        };
        let options = GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        };
        let mut generator = Generator::new(site.topology.generator(), "gen0", options)?;
        for _ in 0..windows {
            generator.send(keys.into())?;
            daemon
                .request("POST", &format!("{PROBE}/windows"), &[], b"")
                .expect(201);
        }
        let list = daemon.json(&format!("{PROBE}/windows"));
        let list = list["windows"].as_array().context("the windows")?;
        ensure!(list.len() as u64 == windows, "{} windows", list.len());
        let stored = list
            .iter()
            .filter_map(|window| window["bytes"].as_u64())
            .sum();
        Ok(Self {
            daemon,
            generator: site.describe(),
            windows,
            keys,
            stored,
            _site: site,
        })
    }

    fn measure(&self, path: &str, rounds: u64) -> Result<Measured> {
        let mut client = Client::new(&self.daemon);
        let pid = self.daemon.pid();
        let mut ms = Sample::default();
        let (mut bytes, before) = (0, Resident::of(pid)?.total_kib);
        Resident::reset_peak(pid)?;
        let busy = processor_seconds(pid)?;
        for _ in 0..rounds {
            let started = Instant::now();
            bytes = client.count(path)?;
            ms.add(1e3 * started.elapsed().as_secs_f64());
        }
        let processor_ms = 1e3 * (processor_seconds(pid)? - busy) / rounds as f64;
        let peak_kib = Resident::of(pid)?.peak_kib.saturating_sub(before);
        Ok(Measured {
            ms,
            bytes,
            processor_ms,
            peak_kib,
        })
    }

    /// Adds up the numbers of a chart of all keys, or of one key.
    fn check(&self, path: &str) -> Result<()> {
        let chart = self
            .daemon
            .json(&path.replace("field=bytes", "field=packets"));
        let series = chart["series"]
            .as_array()
            .context("the keys of the chart")?;
        let parts = || series.iter().chain(chart.get("others"));
        let points = parts()
            .filter_map(|part| part["values"].as_array())
            .flatten();
        let (totals, points): (u64, u64) = (
            parts().filter_map(|part| part["total"].as_u64()).sum(),
            points.filter_map(Value::as_u64).sum(),
        );
        let keys = if path.contains("key=") {
            1
        } else {
            u64::from(self.keys)
        };
        ensure!(
            totals == keys * self.windows && points == totals,
            "{totals} and {points} packets"
        );
        ensure!(
            chart["windows"] == self.windows && chart["left_out"].is_null(),
            "{chart}"
        );
        Ok(())
    }

    fn cells(&self, case: Case, answer: &str, measured: &Measured) -> Vec<String> {
        let Measured {
            ms,
            bytes,
            processor_ms,
            peak_kib,
        } = measured;
        let reached = Estimate::of(ms).value <= TIME && *bytes <= BYTES;
        vec![
            case.name.to_owned(),
            self.windows.to_string(),
            self.keys.to_string(),
            format!("{:.0}", self.stored as f64 / 1e6),
            answer.to_owned(),
            ms.len().to_string(),
            Estimate::of(ms).show(0),
            format!("{:.0}", ms.quantile(1.0)),
            format!("{:.1}", *bytes as f64 / 1024.0),
            format!("{processor_ms:.0}"),
            format!("{:.0}", *peak_kib as f64 / 1024.0),
            met(reached).to_owned(),
        ]
    }
}
