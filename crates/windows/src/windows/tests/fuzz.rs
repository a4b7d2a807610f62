//! Bodies with damage and a right digest are either refused or read. The reader trusts no length in
//! them.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use twinprobe_fuzz::runner;

use super::*;
use crate::body::content::Content;
use crate::body::format::BodyDigest;
use crate::body::{format, stored};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/windows/tests/golden");

/// Reads all of a window's body.
fn read(input: &[u8]) {
    let Some((content, _)) = input.split_last_chunk::<32>() else {
        return;
    };
    let body = || Content::Bytes([content, &Sha256::digest(content)].concat());
    let Ok((head, _)) = format::examine::<WindowHead>(&body(), BodyDigest::Unknown) else {
        return;
    };
    let whole = super::head(1, ClosedBy::Request, 0);
    if head.changes.is_some() && head.described() > 0 {
        assert!(
            stored::open(body(), head.window.seq).is_err(),
            "it builds on no window"
        );
        let _ = head.with_described(&whole);
        return;
    }
    let window = stored::open(body(), head.window.seq).unwrap();
    for metric in 0..=window.head.metrics.len() {
        let mut chunks = 0..;
        while chunks
            .next()
            .is_some_and(|index| matches!(window.chunk(metric, index), Ok(Some(_))))
        {}
    }
    let _ = window.sums();
}

#[test]
fn window_files() {
    let directory = directory();
    let windows = open(directory.path());
    let small = commit(&windows, 1, 2);
    let mut seeds: Vec<_> = runner::files(GOLDEN)
        .into_iter()
        .filter(|file| file.starts_with(b"tpwind"))
        .collect();
    seeds.push(bytes(&small));
    // The tables are nested deeper than the maps of a map of maps.
    let deep = (0..6).fold(rows(3, 2), |inner, _| RawTable {
        inner: vec![inner],
        ..rows(1, 1)
    });
    let mut writer = windows.write(&head(2, ClosedBy::Request, 0)).unwrap();
    writer.rows(1, &deep).unwrap();
    seeds.push(bytes(&writer.commit().unwrap()));
    runner::run("window-file", Duration::from_secs(2), &seeds, read);
}
