//! Compiler and loader of the fixture's own programs.

pub mod variants;

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use aya::{Ebpf, EbpfLoader};

/// Compiles eBPF C with clang; `defines` are `NAME` or `NAME=VALUE`.
pub fn compile(source: &str, defines: &[String]) -> Result<Vec<u8>> {
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/compiler/headers");
    let mut clang = Command::new("clang")
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-O2",
            "-g",
            "-Wall",
            "-fno-addrsig",
        ])
        .args(["-I", headers, "-idirafter", &multiarch])
        .args(defines.iter().map(|define| format!("-D{define}")))
        .args(["-x", "c", "-c", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start clang")?;
    // clang reads all of its input before it writes, so this can't deadlock. The exit status shows
    // a refusal.
    let _ = clang
        .stdin
        .take()
        .context("clang has a standard input")?
        .write_all(source.as_bytes());
    let output = clang.wait_with_output().context("wait for clang")?;
    ensure!(
        output.status.success(),
        "clang: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// Compiles and loads a source that needs no kernel BTF.
pub fn load(source: &str, defines: &[String]) -> Result<Ebpf> {
    let object = compile(source, defines)?;
    EbpfLoader::new()
        .btf(None)
        .load(&object)
        .context("load eBPF object")
}
