//! The state of an earlier version, which had files instead of the store, is taken over once.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology, copy_directory};

/// A state directory of the last version with files. Five windows of probe `p` were closed, at most
/// two are retained; everybody has acknowledged the second, collector `a` the fourth. The client
/// that had closed both windows of `q` has taken them.
const STATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/state-2");

fn packets(document: &Value) -> (u64, u64) {
    (
        total(document, "ingress", "in_array"),
        total(document, "ingress", "total"),
    )
}

#[test]
fn windows_cursors_and_sums_go_on_in_the_store() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let directories = Arc::new(Directories::new()?);
    copy_directory(Path::new(STATE), &directories.state())?;
    let mut daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        Arc::clone(&directories),
    )?;
    for signal in [None, Some(libc::SIGKILL), Some(libc::SIGTERM)] {
        if let Some(signal) = signal {
            daemon = daemon.restart(signal, &DaemonOptions::default())?;
        }
        let windows = Windows::of(&daemon, "p");
        let status = daemon.json("/v1/probes/p");
        assert_eq!(status["instance"], "4a40e7960f891a83f3addd6887c23a26");
        assert_eq!(
            (
                &status["windows"]["lost"],
                &status["windows"]["damaged"],
                &status["revision"]
            ),
            (&json!(3), &json!(0), &json!(1)),
            "{status}"
        );
        assert_eq!(
            (windows.seqs(), windows.list("after=0").lost),
            (vec![4, 5], 3)
        );
        assert_eq!(
            [4, 5].map(|seq| packets(&windows.get(seq))),
            [(11, 43), (10, 53)]
        );
        assert_eq!(windows.list("collector=a").seqs(), [5]);
        assert_eq!(windows.list("collector=b").seqs(), [4, 5]);
        let revisions = daemon.json("/v1/probes/p/revisions");
        assert_eq!(
            revisions["revisions"].as_array().map(Vec::len),
            Some(1),
            "{revisions}"
        );
        assert_eq!(Windows::of(&daemon, "q").seqs(), [1, 2]);
        for left in ["windows", "probes", "revisions", "expired"] {
            assert!(!directories.state().join(left).exists(), "{left} is left");
        }
    }
    generator.send(7)?;
    let document = Windows::of(&daemon, "p").close();
    assert_eq!(
        (&document["window"]["seq"], packets(&document)),
        (&json!(6), (7, 60))
    );
    let document = daemon.json("/v1/probes/q/metrics");
    assert_eq!(
        document["window"]["seq"], 3,
        "what was taken is not given again"
    );
    assert_eq!(packets(&document), (7, 60));
    Ok(())
}

/// A file that can't be read now may be readable later: nothing is changed.
#[test]
fn nothing_changes_while_a_file_can_not_be_read() -> Result<()> {
    let topology = Topology::new()?;
    let directories = Arc::new(Directories::new()?);
    copy_directory(Path::new(STATE), &directories.state())?;
    let file = directories.state().join("windows/p/4.taken");
    let aside = directories.temporary().join("aside");
    std::fs::rename(&file, &aside)?;
    std::os::unix::fs::symlink(&file, &file)?;
    let refused = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        Arc::clone(&directories),
    );
    let reason = format!("{:#}", refused.expect_err("a file can't be read"));
    assert!(reason.contains("windows/p/4.taken"), "{reason}");
    std::fs::remove_file(&file)?;
    std::fs::rename(&aside, &file)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    assert_eq!(Windows::of(&daemon, "p").seqs(), [4, 5]);
    Ok(())
}
