//! Copies of directories that are kept beside the tests.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Copies a directory with everything in it.
pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &to)?;
        } else {
            let _ = fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
