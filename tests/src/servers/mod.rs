//! The servers that streams send to: the real programs of other projects, which setup/test-tools.sh
//! has fetched.

pub mod kafka;
pub mod nats;

use std::env;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Returns a tool that setup/test-tools.sh has fetched.
pub fn tool(path: &str) -> Result<PathBuf> {
    // This executable is below the directory target/ of cargo.
    let executable = env::current_exe()?;
    let mut found = executable
        .ancestors()
        .map(|target| target.join("tmp/test-tools").join(path));
    found
        .find(|tool| tool.exists())
        .with_context(|| format!("run setup/test-tools.sh: {path} is not there"))
}

/// Runs a script of Python with the clients of receivers. Returns the JSON that it prints.
pub fn python(script: &str, arguments: &[&str]) -> Result<Value> {
    let output = Command::new(tool("streams/bin/python")?)
        .args(["-c", script])
        .args(arguments)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns a port without a listener, another one with each call. It does not use the ports that
/// the kernel gives to clients: a client could take such a port before its server listens.
pub fn free_port() -> Result<u16> {
    const FIRST: u32 = 10_000;
    const CLIENTS: u32 = 32_768;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Each process of a test has its own ports.
    let own = std::process::id().wrapping_mul(64);
    let mut ports = (0..CLIENTS - FIRST).map(|_| {
        FIRST + own.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed)) % (CLIENTS - FIRST)
    });
    let free =
        ports.find_map(|port| TcpListener::bind(("127.0.0.1", u16::try_from(port).ok()?)).ok());
    Ok(free.context("no port is free")?.local_addr()?.port())
}
