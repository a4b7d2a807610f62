//! The keys that sign the notifications of rules. Their file is read for each notification, so that
//! keys may change at any time.

use std::path::PathBuf;

use twinprobe_client::SigningKeys;

/// A file with keys, one on each line.
#[derive(Clone, Debug)]
pub struct KeyFile(pub PathBuf);

impl KeyFile {
    /// Reads the keys. An error names the line at fault, and shows no key.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or has a line that is not a key.
    pub fn read(&self) -> Result<SigningKeys, String> {
        let told = |error: String| format!("{}: {error}", self.0.display());
        let text = std::fs::read_to_string(&self.0).map_err(|error| told(error.to_string()))?;
        SigningKeys::parse(&text).map_err(told)
    }
}
