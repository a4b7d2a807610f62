//! Builds other than those under test: the shipped binaries, and the command line for systems other
//! than Linux.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::architecture::root;

/// A system of another kind, whose standard library setup/test-tools.sh fetches.
const ELSEWHERE: &str = "x86_64-unknown-freebsd";

fn output(command: &mut Command) -> Result<String> {
    let out = command
        .current_dir(root())
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()?;
    ensure!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(String::from_utf8(out.stdout)?)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).arg("--locked");
    cargo
}

/// Returns the features of the crate with the fault points in the daemon's binary, if these
/// packages are built together.
fn faults(packages: &[&str]) -> Result<String> {
    let mut tree = cargo(&[
        "tree",
        "--edges",
        "normal,features",
        "--invert",
        "twinprobe-faults",
    ]);
    packages
        .iter()
        .for_each(|package| _ = tree.args(["--package", package]));
    output(&mut tree)
}

#[test]
fn what_is_shipped_has_no_steps_to_end_at() -> Result<()> {
    let points = "feature \"points\"";
    assert!(
        !faults(&["twinprobe", "twinprobe-streams"])?.contains(points),
        "the daemon ends where a variable says"
    );
    assert!(
        faults(&["twinprobe", "twinprobe-tests"])?.contains(points),
        "the tests end nothing"
    );
    let makefile = std::fs::read_to_string(root().join("Makefile"))?;
    let shipped = "build: console\n\t$(CARGO) build --release -p twinprobe -p twinprobe-streams\n";
    assert!(
        makefile.contains(shipped),
        "`make build` builds more than the daemon"
    );
    Ok(())
}

/// The check covers types only, so the one dependency in C needs no compiler for the other system.
#[test]
fn the_command_line_builds_where_there_is_no_linux() -> Result<()> {
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let library =
        output(Command::new(rustc).args(["--print", "target-libdir", "--target", ELSEWHERE]))?;
    if !Path::new(library.trim()).is_dir() {
        let is_rustup = Command::new("rustup").arg("--version").output().is_ok();
        ensure!(
            !is_rustup,
            "run setup/test-tools.sh: {library} is not there"
        );
        eprintln!("this Rust has no other targets");
        return Ok(());
    }
    let mut check = cargo(&[
        "check",
        "--quiet",
        "--package",
        "twinprobe-cli",
        "--target",
        ELSEWHERE,
    ]);
    for tool in ["CC", "AR"] {
        check.env(format!("{tool}_{}", ELSEWHERE.replace('-', "_")), "true");
    }
    check.env(
        "CARGO_TARGET_DIR",
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(ELSEWHERE),
    );
    output(&mut check)?;
    Ok(())
}
