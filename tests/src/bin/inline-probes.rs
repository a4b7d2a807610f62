//! `inline-probes`: writes the source of every ready-made probe into its configuration (`make probes`).

use std::fs;

use anyhow::{Context, Result};
use twinprobe_tests::probes;

fn main() -> Result<()> {
    for name in probes::names()? {
        let path = probes::configuration_path(&name);
        let wanted = probes::with_inline_source(&name)?;
        if fs::read_to_string(&path)? != wanted {
            fs::write(&path, wanted).with_context(|| format!("write {}", path.display()))?;
            println!("updated {name}.json");
        }
    }
    Ok(())
}
