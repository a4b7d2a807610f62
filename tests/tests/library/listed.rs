//! The folders, the list, the table and the binary have the same probes.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::probes::{self, index};
use twinprobe_tests::{Daemon, Topology};

use crate::expected::for_every_probe;

/// The largest picture, in bytes.
const PICTURE: u64 = 6 << 10;
/// The largest capture, in bytes.
const CAPTURE: u64 = 128 << 10;

#[test]
fn the_lists_are_up_to_date() -> Result<()> {
    for (file, wanted) in [
        ("index.json", index::index_text()?),
        ("README.md", index::readme_text()?),
    ] {
        let text = fs::read_to_string(probes::directory().join(file)).context(file)?;
        assert!(
            text == wanted,
            "probes/{file} is out of date: run `make probes`"
        );
    }
    Ok(())
}

#[test]
fn configurations_carry_their_name_and_their_source() -> Result<()> {
    for_every_probe(|name| {
        let file = fs::read_to_string(probes::configuration_path(name))?;
        ensure!(
            file == probes::with_inline_source(name)?,
            "{name}.json is out of date: run `make probes`"
        );
        ensure!(
            probes::configuration(name, "eth0")?["name"] == name,
            "the configuration has another name"
        );
        Ok(())
    })
}

#[test]
fn folders_are_complete() -> Result<()> {
    for_every_probe(|name| {
        let folder = probes::directory().join(name);
        for file in [
            "capture.py",
            "capture.pcap",
            "check.json",
            "expected.json",
            "picture.svg",
        ] {
            let length = fs::metadata(folder.join(file))
                .with_context(|| file.to_owned())?
                .len();
            let most = match file {
                "picture.svg" => PICTURE,
                "capture.pcap" => CAPTURE,
                _ => u64::MAX,
            };
            ensure!(
                length <= most,
                "{file} has {length} bytes, at most {most} are allowed"
            );
        }
        ensure!(
            probes::readme(name)?.contains("](picture.svg)"),
            "README.md does not show picture.svg"
        );
        Ok(())
    })
}

#[test]
fn the_binary_has_the_whole_library() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let output = daemon.client(&["probes"])?;
    let list = String::from_utf8(output.stdout)?;
    let listed: Vec<&str> = list
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, probes::names()?);
    let tagged = String::from_utf8(daemon.client(&["probes", "--tag", "protocols"])?.stdout)?;
    assert!(
        tagged.contains("packet-counter") && !tagged.contains("flow-features"),
        "{tagged}"
    );

    let apply = |arguments: &[&str]| daemon.client(&[&["apply", "--probe"], arguments].concat());
    let done = apply(&[
        "packet-counter",
        "--interface",
        "mon0",
        "--interface",
        "mon1",
        "--hook",
        "tc",
    ])?;
    assert!(done.status.success(), "{done:?}");
    let status = daemon.json("/v1/probes/packet-counter");
    let at = status["interfaces"].as_array().context("interfaces")?;
    let of = |at: &Value| {
        ["interface", "direction", "hook"].map(|field| at[field].as_str().unwrap_or("").to_owned())
    };
    let mut at: Vec<_> = at.iter().map(of).collect();
    at.sort();
    let each = |interface: &str| {
        ["egress", "ingress"].map(|way| [interface, way, "tc"].map(str::to_owned))
    };
    assert_eq!(at, [each("mon0"), each("mon1")].concat());

    for (arguments, code) in [
        (&["packet-counter"][..], 2),
        (&["no-such-probe", "--interface", "mon0"][..], 1),
        (
            &[
                "packet-counter",
                "--interface",
                "mon0",
                "--hook",
                "netfilter",
            ][..],
            1,
        ),
    ] {
        let refused = apply(arguments)?;
        assert_eq!(refused.status.code(), Some(code), "{refused:?}");
    }
    Ok(())
}
