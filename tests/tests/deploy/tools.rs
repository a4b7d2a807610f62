//! Tools that are not part of the build: fetched once into the target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the directory with these tools; `None` where they can't be had, with the reason on
/// standard output.
pub fn tools(names: &[&str]) -> Result<Option<PathBuf>> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy-tools");
    let mut command = Command::new("sh");
    command
        .arg(root().join("setup/deploy-tools.sh"))
        .arg(&directory)
        .args(names);
    let output = command.output().context("sh runs")?;
    if !output.status.success() {
        println!(
            "NOT TESTED, without {names:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        return Ok(None);
    }
    Ok(Some(directory.join("bin")))
}

/// Runs a command and returns its output; fails if the command does.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", shown(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the output of a command.
pub fn shown(output: &Output) -> String {
    let text =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    format!("{}\n{}{}", output.status, text[0], text[1])
}
