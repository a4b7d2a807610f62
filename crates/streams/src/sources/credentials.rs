//! The files with a stream's credentials. They are read again after a failure, so that the stream
//! uses new credentials.

use std::path::{Path, PathBuf};

use twinprobe_client::Credentials;

/// The variable with a token, if no file has one.
const TOKEN: &str = "TWINPROBE_TOKEN";

/// Files with credentials and authorities, all of them optional.
#[derive(Clone, Debug, Default)]
pub struct CredentialFiles {
    pub token_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl CredentialFiles {
    /// Reads the credentials for daemons. An error is the field and its mistake.
    pub fn read(&self) -> Result<Credentials, (&'static str, String)> {
        let mut credentials = self.certificates()?;
        let token = match &self.token_file {
            Some(path) => Some(String::from_utf8_lossy(&read("tokenFile", path)?).into_owned()),
            None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        };
        if let Some(token) = token {
            credentials = credentials
                .token(token.trim())
                .map_err(|error| ("tokenFile", error.to_string()))?;
        }
        Ok(credentials)
    }

    /// Reads the authorities and the certificate, without a token: that of the environment is for
    /// daemons alone.
    pub fn certificates(&self) -> Result<Credentials, (&'static str, String)> {
        let mut credentials = Credentials::default();
        if let Some(path) = &self.ca {
            let authorities = read("ca", path)?;
            let unusable = |error| ("ca", format!("{}: {error}", path.display()));
            credentials = credentials.authorities(&authorities).map_err(unusable)?;
        }
        if self.key.is_some() && self.cert.is_none() {
            return Err((
                "key",
                "a key needs the certificate that it belongs to: `cert`".to_owned(),
            ));
        }
        if let Some(path) = &self.cert {
            let mut identity = read("cert", path)?;
            if let Some(key) = &self.key {
                identity.push(b'\n');
                identity.extend(read("key", key)?);
            }
            let unusable = |error| ("cert", format!("{}: {error}", path.display()));
            credentials = credentials.identity(&identity).map_err(unusable)?;
        }
        Ok(credentials)
    }
}

fn read(field: &'static str, path: &Path) -> Result<Vec<u8>, (&'static str, String)> {
    std::fs::read(path).map_err(|error| (field, format!("{}: {error}", path.display())))
}
