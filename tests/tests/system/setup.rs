//! Tests of `setup/install.sh` for a user who is not root, with commands that only record their
//! calls.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result};

/// The commands that the script looks for or calls, without the commands that a case leaves out.
const PRESENT: &str = "psql pkg-config java mvn kcat prometheus victoria-metrics go make clang clang-14 clang-16 llvm-strip cc ip tc ethtool bpftool nfcapd nsenter mount ps sysctl curl ping qemu-system-x86_64 python3 tshark podman runc \
    dh node npm chromium openssl luajit jq cargo apt-cache mkfs.ext4 mkfs.xfs mkfs.btrfs";
/// The commands that the script needs for itself.
const REAL: [&str; 7] = ["ls", "dirname", "uname", "sed", "cut", "sort", "head"];

fn write_command(directory: &Path, name: &str, script: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// Runs the script without any Rust. Returns its output, and the calls of apt-get and rustup.
fn install(others: &[(&str, &str)]) -> Result<(Output, String)> {
    let directory = tempfile::tempdir()?;
    let bin = directory.path();
    for name in REAL {
        let path = std::env::split_paths(&std::env::var_os("PATH").context("PATH")?)
            .map(|directory| directory.join(name))
            .find(|path| path.is_file());
        symlink(path.context(name)?, bin.join(name))?;
    }
    for name in PRESENT.split_whitespace() {
        write_command(bin, name, "")?;
    }
    write_command(bin, "id", "echo 1000")?;
    write_command(bin, "apt-get", "echo apt-get >> \"$HOME/calls\"")?;
    write_command(
        bin,
        "rustup",
        "echo rustup >> \"$HOME/calls\"; : > \"$HOME/rust\"",
    )?;
    write_command(
        bin,
        "rustc",
        "[ -e \"$HOME/rust\" ] && echo 'rustc 999.0.0'",
    )?;
    for (name, script) in others {
        write_command(bin, name, script)?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../setup/install.sh");
    let mut command = Command::new("/bin/sh");
    command
        .arg(script)
        .arg("make")
        .env_clear()
        .env("PATH", bin)
        .env("HOME", bin);
    let output = command.output()?;
    Ok((
        output,
        fs::read_to_string(bin.join("calls")).unwrap_or_default(),
    ))
}

#[test]
fn rust_alone_is_installed_without_root() -> Result<()> {
    let xmllint = ("xmllint", "");
    let (output, calls) = install(&[xmllint])?;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls, "rustup\n");

    let (output, calls) = install(&[xmllint, ("sudo", "exec \"$@\"")])?;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls, "apt-get\nrustup\n");

    // Packages need root.
    let (output, calls) = install(&[])?;
    let error = String::from_utf8(output.stderr)?;
    assert!(
        !output.status.success() && error.contains("libxml2-utils") && error.contains("sudo"),
        "{error}"
    );
    assert_eq!(calls, "");
    Ok(())
}
