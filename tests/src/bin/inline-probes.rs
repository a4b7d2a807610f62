//! `inline-probes`: writes the source of every ready-made probe into its configuration, and the
//! list of the probes (`make probes`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use twinprobe_tests::probes::{self, index};

fn main() -> Result<()> {
    for name in probes::names()? {
        update(
            &probes::configuration_path(&name),
            &probes::with_inline_source(&name)?,
        )?;
    }
    update(
        &probes::directory().join("index.json"),
        &index::index_text()?,
    )?;
    update(
        &probes::directory().join("README.md"),
        &index::readme_text()?,
    )
}

fn update(path: &Path, wanted: &str) -> Result<()> {
    if !fs::read_to_string(path).is_ok_and(|present| present == wanted) {
        fs::write(path, wanted).with_context(|| format!("write {}", path.display()))?;
        println!("updated {}", path.display());
    }
    Ok(())
}
