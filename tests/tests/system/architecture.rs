//! Invariants of the source tree that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Every file below `directory` with this ending.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    Ok(found)
}

#[test]
fn every_crate_inherits_the_workspace_lints() -> Result<()> {
    let workspace = fs::read_to_string(root().join("Cargo.toml"))?;
    let members = workspace.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let (members, _) = members.context("the workspace lists its members")?;
    let mut count = 0;
    for member in members.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty())
    {
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml"))?;
        assert!(manifest.contains("[lints]\nworkspace = true"), "{member} does not inherit the lints");
        count += 1;
    }
    assert!(count >= 4, "{members}");
    Ok(())
}

#[test]
fn only_the_kernel_module_knows_aya_and_libc() -> Result<()> {
    for path in files(&root().join("crates"), ".rs")? {
        if path.starts_with(root().join("crates/agent/src/kernel")) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        for word in ["aya::", "aya_obj::", "libc::", "use aya", "use libc", "unsafe {"] {
            assert!(!text.contains(word), "{} contains {word:?}", path.display());
        }
    }
    Ok(())
}

#[test]
fn the_exporter_and_the_vocabulary_have_no_unsafe_code_and_no_kernel() -> Result<()> {
    for name in ["exporter", "ebpf-common"] {
        let folder = root().join("crates").join(name);
        let library = fs::read_to_string(folder.join("src/lib.rs"))?;
        assert!(library.contains("#![forbid(unsafe_code)]"), "{name}");
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        for dependency in ["aya", "libc", "tokio", "axum"] {
            let depends = manifest.lines().any(|line| line.starts_with(dependency));
            assert!(!depends, "{name} depends on {dependency}");
        }
    }
    Ok(())
}
