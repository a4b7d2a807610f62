//! The console in Chromium against the daemon, by Playwright: `console/tests`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

#[test]
fn the_console_works_in_a_browser() -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../console/tests/run.sh");
    let output = Command::new("bash")
        .arg(script)
        .env("TWINPROBE", twinprobe_tests::binary()?)
        .output()?;
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    ensure!(
        output.status.success(),
        "console/tests/run.sh: {}",
        output.status
    );
    Ok(())
}
