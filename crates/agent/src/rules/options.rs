//! The options of `serve` about rules.

use std::path::PathBuf;

use twinprobe_client::SigningKeys;
use twinprobe_state_files::trusted;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct RuleOptions {
    /// Keys that sign the notifications of rules, one per line: whsec_ and 24 to 64 bytes in
    /// base64; read for each notification
    #[arg(long, value_name = "FILE")]
    pub notification_keys: Option<PathBuf>,
}

impl RuleOptions {
    /// Reads the keys. An error names the fault of the file, and shows no key.
    pub fn keys(&self) -> Result<Option<SigningKeys>, String> {
        let Some(path) = &self.notification_keys else {
            return Ok(None);
        };
        let wrong = |error: String| {
            format!(
                "the file {} of --notification-keys: {error}",
                path.display()
            )
        };
        let bytes = trusted::read(path).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not a text".to_owned()))?;
        SigningKeys::parse(&text).map(Some).map_err(wrong)
    }
}
