//! The core tests on other kernels, in emulated machines. `tests/kernels/README.md` says how.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// Runs the core tests on the kernel of a suite of `tests/kernels/kernels`.
fn run_on(suite: &str) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/run.sh");
    let mut command = Command::new("sh");
    command.arg(script).args(["amd64", suite]);
    // The script asks cargo for executables. With a test's variables cargo would consider some
    // build scripts outdated.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        }) {
            command.env_remove(name);
        }
    }
    let output = command.output()?;
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    ensure!(
        output.status.success(),
        "tests/kernels/run.sh amd64 {suite}: {}",
        output.status
    );
    Ok(())
}

#[test]
fn linux_5_10() -> Result<()> {
    run_on("bullseye")
}

#[test]
fn linux_6_1() -> Result<()> {
    run_on("bookworm")
}

#[test]
fn linux_6_12() -> Result<()> {
    run_on("trixie")
}
