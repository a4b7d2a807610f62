//! Daemons with the rights that `deploy/twinprobe.service` leaves them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::daemon::{DaemonOptions, binary};

/// Returns the options of a daemon that runs as under the unit, and without these capabilities and
/// system calls either. `directory` is for a script that becomes the daemon.
pub fn as_under_the_unit(directory: &Path, without: &[&str]) -> Result<DaemonOptions> {
    crate::directories::mount_bpffs()?;
    let daemon = binary()?;
    // The program is built with the tests, and so is in their directory or the one above.
    let tests = std::env::current_exe()?;
    let unit = tests
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("unit"))
        .find(|path| path.is_file());
    let unit = unit.context("the program `unit` of these tests has not been built")?;
    let without: String = without
        .iter()
        .map(|word| format!(" --without {word}"))
        .collect();
    let path = directory.join(format!("wrapper{}", without.replace(' ', "_")));
    let script = format!(
        "#!/bin/sh\nexec '{}'{without} '{}' \"$@\"\n",
        unit.display(),
        daemon.display()
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(DaemonOptions {
        binary: Some(path),
        ..DaemonOptions::default()
    })
}
