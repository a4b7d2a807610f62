//! Tools of other projects that read the same content, measured in turns with the daemon.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::maps::{BareLookups, HashTable};
use twinprobe_tests::measure::{ProcessorTime, Sample};

use crate::experiments::export::formats::ROOM;
use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::bcc::Bcc;
use crate::scenes::ebpf_exporter::EbpfExporter;
use crate::scenes::million::{Content, FORMATS, Million, fill};

/// The goal: a scrape of ebpf_exporter takes at least this many times as long as a scrape of the
/// daemon.
const SCRAPE: f64 = 5.0;
/// The beginning of a line with a sample of the table, on the page of ebpf_exporter.
const SAMPLE: &str = "\nebpf_exporter_table{";

/// A way to read a table of numbers.
struct Reader {
    name: &'static str,
    times: Sample,
}

/// Reads tables of numbers of several sizes by all ways, in turns. Returns the names of the tools
/// that are missing.
pub fn readers(bench: &Bench, section: &mut Section) -> Result<Vec<String>> {
    let sizes: &[u32] = if bench.quick {
        &[20_000]
    } else {
        &[10_000, 100_000, 1_000_000]
    };
    let mut table = Table::new(&["entries", "rounds", "tool", "ms", "times ours as JSON"]);
    let mut curves: Vec<Curve> = Vec::new();
    let (mut missing, mut claims) = (Vec::new(), Vec::new());
    for &entries in sizes {
        let mut million = Million::new(Content::Numbers, entries)?;
        million.check()?;
        let mut bcc = Bcc::exporter(million.namespace(), entries)?;
        if let Some(bcc) = &bcc {
            fill(
                &HashTable::of_process(bcc.pid(), entries)?,
                Content::Numbers,
            )?;
        }
        let has_bpftool = dumps(million.table.id, entries)?;
        let tools = [(has_bpftool, "bpftool"), (bcc.is_some(), "BCC")].into_iter();
        missing = tools
            .filter(|(is_here, _)| !is_here)
            .map(|(_, name)| name.to_owned())
            .collect();
        let mut names = vec![
            "bare look-ups",
            "twinprobe, JSON",
            "twinprobe, XML",
            "twinprobe, OpenMetrics",
        ];
        names.extend(has_bpftool.then_some("bpftool -j"));
        names.extend(bcc.is_some().then_some("BCC"));
        let mut readers: Vec<Reader> = names
            .into_iter()
            .map(|name| Reader {
                name,
                times: Sample::default(),
            })
            .collect();
        let mut bare = BareLookups::new(&million.table, ROOM);
        bare.read(&million.table)?;
        let rounds = bench.rounds(5, 1);
        for round in 0..rounds as usize {
            for turn in 0..readers.len() {
                let at = (turn + round) % readers.len();
                let started = Instant::now();
                let mut said = None;
                match readers[at].name {
                    "bare look-ups" => {
                        ensure!(
                            bare.read(&million.table)? == entries as usize,
                            "all entries"
                        )
                    }
                    "bpftool -j" => bpftool(million.table.id)?,
                    "BCC" => {
                        let (ms, found) = bcc.as_mut().context("it is here")?.json()?;
                        ensure!(found == entries, "BCC: {found} of {entries} entries");
                        said = Some(ms);
                    }
                    _ => drop(million.client.count(&Million::path(FORMATS[at - 1].1))?),
                }
                let ms = said.unwrap_or_else(|| 1e3 * started.elapsed().as_secs_f64());
                readers[at].times.add(ms);
            }
        }
        let ours = readers[1].times.median();
        for (place, Reader { name, times }) in readers.iter().enumerate() {
            let times_ours = format!("{:.2}", times.median() / ours);
            table.row([
                entries.to_string(),
                rounds.to_string(),
                (*name).to_owned(),
                Estimate::of(times).show(1),
                times_ours.clone(),
            ]);
            if entries == *sizes.last().context("a size")? && place > 3 {
                claims.push(format!("{name}: {times_ours}"));
            }
            let point = (f64::from(entries), Estimate::of(times));
            match curves.iter_mut().find(|curve| curve.name == *name) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    name: (*name).to_owned(),
                    points: vec![point],
                }),
            }
        }
    }
    section.tables.push(table);
    section.figures.push(Figure {
        name: "export",
        title: "Time to read a table of numbers by its entries",
        x: Axis {
            label: "entries",
            logarithmic: true,
        },
        y: Axis {
            label: "ms",
            logarithmic: true,
        },
        panels: vec![Panel {
            title: "u32 -> u64".to_owned(),
            curves,
        }],
    });
    section.claims.push(Claim {
        claim: "1,000,000 entries as JSON against other tools",
        paper: "",
        ours: "1".to_owned(),
        peers: claims.join(", "),
    });
    Ok(missing)
}

/// Scrapes tables of 100,000 numbers. Returns the name of ebpf_exporter if it is missing.
pub fn scrapes(bench: &Bench, section: &mut Section) -> Result<Vec<String>> {
    let entries = bench.times(100_000, 5_000) as u32;
    let mut million = Million::new(Content::Numbers, entries)?;
    let Some(exporter) = EbpfExporter::start(million.namespace(), entries)? else {
        return Ok(vec!["ebpf_exporter".to_owned()]);
    };
    fill(
        &HashTable::of_process(exporter.pid(), entries)?,
        Content::Numbers,
    )?;
    let mut page = Vec::new();
    exporter.scrape(&mut page)?;
    let theirs = String::from_utf8_lossy(&page).matches(SAMPLE).count();
    million.client.get("/metrics", &mut page)?;
    let ours = twinprobe_tests::http::parse(&page)?
        .text()
        .matches(FORMATS[2].2)
        .count();
    ensure!(
        [theirs, ours] == [entries as usize; 2],
        "{theirs} and {ours} of {entries} series"
    );
    let rounds = bench.rounds(15, 2);
    let (mut processor, pids) = ([0.0; 2], [million.daemon.pid(), exporter.pid()]);
    let compared = Comparison::measure(rounds, |way| {
        let which = usize::from(way == Way::Other);
        let before = ProcessorTime::of(pids[which])?.own;
        let started = Instant::now();
        if way == Way::Base {
            million.client.count("/metrics")?;
        } else {
            exporter.scrape(&mut page)?;
        }
        let time = started.elapsed();
        processor[which] += ProcessorTime::of(pids[which])?.own - before;
        Ok(1e3 * time.as_secs_f64())
    })?;
    let ratio = compared.ratio();
    let mut table = Table::new(&[
        "scrapes of /metrics",
        "rounds",
        "ours, ms",
        "processor ms",
        "ebpf_exporter, ms",
        "processor ms",
        "ebpf_exporter / ours",
        "null",
        ">= 5",
    ]);
    table.row([
        format!("{entries} series"),
        rounds.to_string(),
        Estimate::of(&compared.base).show(1),
        // The daemon is measured twice in each round.
        format!("{:.0}", 1e3 * processor[0] / (2 * rounds) as f64),
        Estimate::of(&compared.other).show(0),
        format!("{:.0}", 1e3 * processor[1] / rounds as f64),
        ratio.show(1),
        compared.null_ratio().show(2),
        ratio.at_least(SCRAPE).to_owned(),
    ]);
    section.tables.push(table);
    section.claims.push(Claim {
        claim: "a scrape of 100,000 series",
        paper: "goal: ebpf_exporter takes >= 5 times as long",
        ours: "1".to_owned(),
        peers: format!("ebpf_exporter: {}", ratio.show(1)),
    });
    Ok(Vec::new())
}

/// Dumps a map with bpftool.
fn bpftool(map: u32) -> Result<()> {
    let mut command = dump(map);
    let status = command
        .stdout(Stdio::null())
        .status()
        .context("start bpftool")?;
    ensure!(status.success(), "bpftool: {status}");
    Ok(())
}

fn dump(map: u32) -> Command {
    let mut command = Command::new("bpftool");
    command
        .args(["-j", "map", "dump", "id", &map.to_string()])
        .stdin(Stdio::null());
    command
}

/// Tells whether bpftool is here, and checks that it dumps all entries.
fn dumps(map: u32, entries: u32) -> Result<bool> {
    let output = match dump(map).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        output => output.context("start bpftool")?,
    };
    let found = String::from_utf8_lossy(&output.stdout)
        .matches("\"formatted\"")
        .count();
    ensure!(
        found == entries as usize,
        "bpftool: {found} of {entries} entries"
    );
    Ok(true)
}
