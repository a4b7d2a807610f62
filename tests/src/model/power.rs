//! A daemon with the capabilities of the service's unit only.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const UNIT: &str = include_str!("../../../deploy/twinprobe.service");

/// Writes a script that drops the capabilities which the service's unit drops, and becomes the
/// daemon. Returns its path.
pub fn wrapper(directory: &Path) -> Result<PathBuf> {
    crate::directories::mount_bpffs()?;
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line
        .context("the unit has a bounding set")?
        .split_whitespace();
    let set: String = names
        .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let path = directory.join("wrapper");
    let script = format!(
        "#!/bin/sh\nexec setpriv --bounding-set=-all{set} --inh-caps=-all --no-new-privs '{}' \"$@\"\n",
        crate::binary()?.display()
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
