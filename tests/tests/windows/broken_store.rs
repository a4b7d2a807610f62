//! A store whose file is damaged: the daemon refuses it as it is, or serves the readable part and
//! reports the rest.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::random::Random;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::windows::{Windows, config};
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology, scaled, store};

const PROBES: [&str; 3] = ["p", "q", "r"];
/// The number of windows of each probe.
const WINDOWS: u64 = 12;
/// The size of the store's pages in bytes, and the size of the head that most pages have.
const PAGE: usize = 4096;
const HEAD: usize = 32;
/// The place of the number of the format (`user_version`), and the number that this version writes.
const FORMAT: usize = 60;
const KNOWN_FORMAT: u32 = 2;

fn path(probe: &str) -> String {
    format!("/v1/probes/{probe}")
}

/// The windows of each probe that a daemon serves.
type Known = [Vec<Vec<u8>>; 3];

fn known(daemon: &Daemon) -> Known {
    PROBES.map(|probe| {
        let windows = Windows::of(daemon, probe);
        (1..=WINDOWS)
            .map(|seq| windows.bytes(seq, "json"))
            .collect()
    })
}

/// Returns a place of the store: anywhere, or the heads of pages.
fn place(random: &mut Random, length: usize) -> usize {
    let page = random.below((length / PAGE) as u64) as usize * PAGE;
    match random.below(3) {
        0 => random.below(length as u64) as usize,
        1 => page + random.below(HEAD as u64) as usize,
        _ => random.below(PAGE as u64) as usize,
    }
}

/// Checks that a daemon serves no other windows than before, and reports the others.
fn check(daemon: &Daemon, known: &Known) -> Result<u64> {
    let mut missing = 0;
    for (probe, known) in PROBES.iter().zip(known) {
        let windows = Windows::of(daemon, probe);
        let mut of_probe = 0;
        for (seq, known) in (1..).zip(known) {
            let answer = windows.request("GET", &format!("{}?format=json", windows.path(seq)))?;
            match answer.status {
                200 => ensure!(
                    answer.body == *known,
                    "{probe}: window {seq} is another one"
                ),
                404 | 500 => of_probe += 1,
                status => ensure!(false, "{probe}: window {seq}: {status}: {}", answer.text()),
            }
        }
        missing += of_probe;
        let status = daemon.get(&path(probe));
        if of_probe == 0 {
            continue;
        }
        // The row of the probe itself may be on a page to which no other page refers.
        let status = if status.status == 404 {
            Value::Null
        } else {
            status.expect(200).json()["windows"].clone()
        };
        let told = ["lost", "damaged", "unreadable"]
            .map(|count| status[count].as_u64().unwrap_or_default());
        if told.iter().any(|count| *count >= of_probe) {
            continue;
        }
        // A row may lack its window's number, or be on a page that no other page refers to. Only
        // the examination of every page finds such a row.
        let (verdict, found) = store::examined(&daemon.directories())?;
        ensure!(
            verdict != "ok",
            "{probe}: {of_probe} windows are missing: {status}; doctor: {found}"
        );
    }
    Ok(missing)
}

/// Checks that a daemon has refused a store correctly.
fn check_refusal(daemon: Daemon, file: &Path, content: &[u8]) -> Result<()> {
    // The last lines of the log may arrive after the end of the daemon.
    daemon.wait_for_log("twinprobe: ", PATIENCE);
    let log = daemon.log();
    let (exit, _) = daemon.terminate()?;
    ensure!(
        exit.code() == Some(1) && !log.contains("panicked"),
        "{exit}: {log}"
    );
    // A wrong byte in the number of the format makes a format of the future.
    let format = content.get(FORMAT..FORMAT + 4).context("the format")?;
    let reasons = if u32::from_be_bytes(format.try_into()?) > KNOWN_FORMAT {
        ["has format", "use a later one"]
    } else {
        ["is damaged and stays as it is", "move the file away"]
    };
    for word in [file.to_str().context("UTF-8")?].into_iter().chain(reasons) {
        ensure!(log.contains(word), "{word:?} is missing: {log}");
    }
    ensure!(fs::read(file)? == content, "the store was changed");
    Ok(())
}

#[test]
fn a_store_with_a_wrong_byte_is_refused_or_serves_no_other_window() -> Result<()> {
    let mut random = Random::new();
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::with_state_in_memory(1 << 30)?);
    let options = DaemonOptions::default();
    let daemon = Daemon::start_in(topology.monitor(), &options, Arc::clone(&directories))?;
    for probe in PROBES {
        let mut config: Value = config(&json!({ "retain": 1000 }), &[]);
        config["ingress"]["verdict"] = json!("observe");
        daemon.put(&path(probe), &config).expect(201);
        let windows = Windows::of(&daemon, probe);
        (0..WINDOWS).for_each(|_| drop(windows.close()));
    }
    let known = known(&daemon);
    let (exit, _) = daemon.terminate()?;
    ensure!(exit.success(), "{exit}");
    let file = store::file(&directories);
    let whole = fs::read(&file)?;
    let (mut refused, mut missing) = (0, 0);
    let rounds = scaled(40, 4000);
    for _ in 0..rounds {
        let (at, mask) = (place(&mut random, whole.len()), 1 << random.below(8));
        let what = format!("bit {mask:#x} of byte {at} of {}", whole.len());
        let mut content = whole.clone();
        content[at] ^= mask;
        for ending in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{ending}", file.display()));
        }
        fs::write(&file, &content)?;
        let daemon = Daemon::spawn_in(topology.monitor(), &options, Arc::clone(&directories))?;
        if daemon.wait_for_start(PATIENCE) {
            missing += check(&daemon, &known).with_context(|| what.clone())?;
            ensure!(!daemon.log().contains("panicked"), "{what}");
            drop(daemon.kill()?);
        } else {
            refused += 1;
            check_refusal(daemon, &file, &content).context(what)?;
        }
    }
    println!("{rounds} stores: {refused} refused, {missing} windows missing in the others");
    Ok(())
}
