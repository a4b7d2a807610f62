//! Window files and baselines that are damaged but have a right digest are refused or read: no length in them is believed.

#[path = "../../../../../fuzz/runner.rs"]
mod runner;

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::file::{format, stored};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/windows/tests/golden");

/// Reads all of a window file.
fn read(input: &[u8]) {
    let Some((content, _)) = input.split_last_chunk::<32>() else { return };
    let mut file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    file.write_all(content).unwrap();
    file.write_all(&Sha256::digest(content)).unwrap();
    let Ok((head, _)) = format::examine::<WindowHead>(&file) else { return };
    let window = stored::open(File::try_clone(&file).unwrap(), head.window.seq).unwrap();
    for metric in 0..=window.head.metrics.len() {
        let mut chunks = 0..;
        while chunks.next().is_some_and(|index| matches!(window.chunk(metric, index), Ok(Some(_)))) {}
    }
    let _ = window.sums();
}

#[test]
fn window_files() {
    let windows = directory();
    let written = Windows::open(windows.path().to_owned());
    commit(&written, 1, 2);
    let mut seeds: Vec<_> =
        runner::files(GOLDEN).into_iter().filter(|file| file.starts_with(b"tpwind")).collect();
    seeds.push(std::fs::read(windows.path().join("1.window")).unwrap());
    // Deeper than a map of maps.
    let deep = (0..6).fold(rows(3, 2), |inner, _| RawTable { inner: vec![inner], ..rows(1, 1) });
    let mut writer = written.write(&head(2, ClosedBy::Request, 0)).unwrap();
    writer.rows(1, &deep).unwrap();
    writer.commit().unwrap();
    seeds.push(std::fs::read(windows.path().join("2.window")).unwrap());
    runner::run("window-file", Duration::from_secs(2), &seeds, read);
}
