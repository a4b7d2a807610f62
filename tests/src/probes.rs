//! The ready-made probes in `probes/`: a folder each, with `NAME.bpf.c` and `NAME.json`, the
//! configuration to push. The configuration carries the source inline, so that one file is all that
//! a PUT needs.

pub mod capture;
pub mod index;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

/// Returns the folder of all ready-made probes.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../probes")
}

/// Returns the names of all ready-made probes, sorted.
pub fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory()).context("read probes/")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if configuration_path(&name).is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

pub fn source_path(name: &str) -> PathBuf {
    directory().join(name).join(format!("{name}.bpf.c"))
}

pub fn configuration_path(name: &str) -> PathBuf {
    directory().join(name).join(format!("{name}.json"))
}

/// Returns the eBPF C source of a probe.
pub fn source(name: &str) -> Result<String> {
    read(&source_path(name))
}

/// Returns the README of a probe.
pub fn readme(name: &str) -> Result<String> {
    read(&directory().join(name).join("README.md"))
}

/// Returns a JSON file of a probe's folder.
pub fn json(name: &str, file: &str) -> Result<Value> {
    let path = directory().join(name).join(file);
    serde_json::from_str(&read(&path)?).with_context(|| format!("parse {}", path.display()))
}

/// Returns the configuration of a probe on `interface`.
pub fn configuration(name: &str, interface: &str) -> Result<Value> {
    let mut document = json(name, &format!("{name}.json"))?;
    document["interface"] = interface.into();
    Ok(document)
}

/// Returns the text that `NAME.json` should have: the present file with the present source in each
/// direction.
pub fn with_inline_source(name: &str) -> Result<String> {
    let source = source(name)?;
    let mut document = json(name, &format!("{name}.json"))?;
    for direction in ["ingress", "egress"] {
        if let Some(direction) = document.get_mut(direction) {
            direction["source"] = source.as_str().into();
        }
    }
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
