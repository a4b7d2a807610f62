//! Clients that begin to read and stop: the daemon's memory and disk that they occupy is bounded.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Result, ensure};
use twinprobe_tests::measure::Resident;

use crate::scene::Scene;

const READERS: usize = 60;
/// `--retain-bytes`: some of the windows, each of half a megabyte.
const BUDGET: u64 = 5 << 20;
/// The memory that one reader may take, in KiB.
const EACH: u64 = 600;

/// Returns the size of the files that were removed and that the daemon still has open.
fn held(scene: &Scene) -> Result<u64> {
    let mut held = 0;
    for entry in fs::read_dir(format!("/proc/{}/fd", scene.daemon.pid()))? {
        let path = entry?.path();
        let target = fs::read_link(&path)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if target.contains("/bodies/") && target.ends_with(" (deleted)") {
            held += fs::metadata(&path).map_or(0, |file| file.len());
        }
    }
    Ok(held)
}

#[test]
fn readers_that_stop_keep_little_memory_and_disk() -> Result<()> {
    let scene = Scene::new(&format!("--retain-bytes {BUDGET}"))?;
    scene.daemon.json("/v1/probes/p/metrics");
    let before = Resident::of(scene.daemon.pid())?.anonymous_kib;
    let mut most = 0;
    let mut readers: Vec<UnixStream> = Vec::new();
    for _ in 0..READERS {
        // Each reader closes a window and stops in the middle of the answer.
        let mut stream = scene.begin("GET /v1/probes/p/metrics HTTP/1.1")?;
        stream.write_all(b"\r\n")?;
        stream.read_exact(&mut [0; 1000])?;
        readers.push(stream);
        most = most.max(held(&scene)?);
    }
    let after = Resident::of(scene.daemon.pid())?.anonymous_kib;
    println!(
        "{READERS} readers: {} KiB more, {most} bytes of files that have gone",
        after - before
    );
    assert!(most > 0, "no window has gone");
    assert!(most <= BUDGET, "{most} bytes of files that have gone");
    assert!(
        after < before + READERS as u64 * EACH,
        "{before} KiB before, {after} KiB after"
    );
    // After that, a reader gets the whole document.
    let document = scene.daemon.json("/v1/probes/p/metrics");
    ensure!(
        document["ingress"]["packets"]["entries"]
            .as_array()
            .is_some_and(|e| e.len() == 65536)
    );
    Ok(())
}
