//! The options for a client's credentials and trusted servers.

use std::path::PathBuf;

use twinprobe_client::Credentials;

use crate::error::CommandError;

/// The variable with the token of a client that has no `--token-file`.
const TOKEN: &str = "TWINPROBE_TOKEN";

#[derive(Debug, Default, clap::Args)]
pub struct CredentialOptions {
    /// File with a client's token; without it, TWINPROBE_TOKEN has the token
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities that a client trusts instead of the system's (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificate that a client shows (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of --cert, unless it is in the same file (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl CredentialOptions {
    /// Reads the files.
    pub fn read(&self) -> Result<Credentials, CommandError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| CommandError::Credential {
                path: path.clone(),
                source,
            })
        };
        let mut credentials = Credentials::default();
        let token = match &self.token_file {
            Some(path) => Some(String::from_utf8_lossy(&read(path)?).into_owned()),
            None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        };
        if let Some(token) = token {
            credentials = credentials.token(token.trim())?;
        }
        if let Some(path) = &self.ca {
            credentials = credentials.authorities(&read(path)?)?;
        }
        let files: Vec<&PathBuf> = self.cert.iter().chain(&self.key).collect();
        if !files.is_empty() {
            let parts = files.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
            credentials = credentials.identity(&parts.join(&b'\n'))?;
        }
        Ok(credentials)
    }
}
