//! Configurations of the programs in `tests/guests`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The directory of the programs.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guests")
}

pub fn source(name: &str) -> Result<String> {
    let path = directory().join(format!("{name}.bpf.c"));
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The value of a variable that a probe shows.
pub fn variable(document: &Value, name: &str) -> Result<u64> {
    let value = &document["ingress"][name]["entries"][0]["value"];
    value.as_u64().with_context(|| document.to_string())
}

/// Returns the configuration of a program at XDP, with these variables or maps as metrics.
pub fn at_xdp(code: &Value, metrics: &[&str]) -> Value {
    let metrics = metrics.iter().map(|map| {
        let name = map.rsplit(':').next().unwrap_or(map);
        json!({ "name": name, "map": map })
    });
    let mut direction = json!({ "metrics": metrics.collect::<Vec<_>>() });
    if let (Some(direction), Some(code)) = (direction.as_object_mut(), code.as_object()) {
        direction.extend(code.clone());
    }
    json!({ "interface": "mon0", "ingress": direction })
}

pub fn of_object(elf: &[u8]) -> Value {
    json!({ "object": STANDARD.encode(elf) })
}

/// The compilers that are installed.
pub fn clangs() -> Vec<String> {
    let names = (11..=21).rev().map(|version| format!("clang-{version}"));
    let is_there = |name: &String| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|run| run.status.success())
    };
    names.filter(is_there).collect()
}

/// Compiles a file the plain way.
pub fn compile(clang: &str, path: &Path, more: &[&str]) -> Result<Vec<u8>> {
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(clang)
        .args(["-target", "bpf", "-O2", "-g", "-I", &multiarch])
        .args(more)
        .args(["-c", "-o", "-"])
        .arg(path)
        .output()?;
    ensure!(
        output.status.success(),
        "{clang}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// Returns the object without debug information, as bpf2go makes it.
pub fn stripped(elf: &[u8]) -> Result<Vec<u8>> {
    changed(elf, "llvm-strip", &["-g"])
}

/// Returns the object without type information.
pub fn without_types(elf: &[u8]) -> Result<Vec<u8>> {
    changed(
        elf,
        "llvm-objcopy",
        &["--remove-section=.BTF", "--remove-section=.BTF.ext"],
    )
}

/// Returns the object as a tool of LLVM has changed it.
fn changed(elf: &[u8], tool: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("object.o");
    std::fs::write(&path, elf)?;
    let status = Command::new(tool)
        .args(arguments)
        .arg(&path)
        .status()
        .with_context(|| format!("start {tool}"))?;
    ensure!(status.success(), "{tool}: {status}");
    Ok(std::fs::read(path)?)
}
