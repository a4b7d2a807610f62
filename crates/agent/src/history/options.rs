//! The options of `serve` about history, and the server to which they refer.

use std::path::PathBuf;

use tokio::sync::Semaphore;
use twinprobe_client::{Credentials, SampleServer};
use twinprobe_state_files::trusted;

/// The questions that are under way at once. Each may have an answer of some MiB.
const PLACES: usize = 4;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct HistoryOptions {
    /// Prometheus-compatible server with the samples of this daemon, for charts beyond the retained
    /// windows
    #[arg(long, value_name = "URL")]
    pub history: Option<SampleServer>,
    /// Authorities that have signed its certificate (PEM), read for each question; by default those
    /// of the system
    #[arg(long, value_name = "FILE", requires = "history")]
    pub history_ca: Option<PathBuf>,
    /// Token that it asks for (Authorization: Bearer), read for each question
    #[arg(long, value_name = "FILE", requires = "history")]
    pub history_token: Option<PathBuf>,
    /// Tenant whose samples they are (X-Scope-OrgID), as Mimir needs it
    #[arg(long, value_name = "NAME", requires = "history")]
    pub history_tenant: Option<String>,
}

/// The server that the operator has named.
#[derive(Debug)]
pub struct HistorySource {
    pub server: SampleServer,
    ca: Option<PathBuf>,
    token: Option<PathBuf>,
    pub places: Semaphore,
}

impl HistorySource {
    /// Returns the server; `None` without one. An error names the option and what is wrong.
    pub fn open(options: HistoryOptions) -> Result<Option<Self>, String> {
        let HistoryOptions {
            history,
            history_ca: ca,
            history_token: token,
            history_tenant: tenant,
        } = options;
        let Some(server) = history else {
            return Ok(None);
        };
        if token.is_some() && server.is_exposed() {
            return Err("--history-token needs https beyond this machine".to_owned());
        }
        let is_name =
            |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if tenant.as_ref().is_some_and(|tenant| !is_name(tenant)) {
            return Err(
                "--history-tenant: a tenant has letters, digits and signs of ASCII".to_owned(),
            );
        }
        let source = Self {
            server: server.of_tenant(tenant),
            ca,
            token,
            places: Semaphore::new(PLACES),
        };
        source.credentials()?;
        Ok(Some(source))
    }

    /// Reads the files. An error names the file, and shows no token.
    pub fn credentials(&self) -> Result<Credentials, String> {
        let mut credentials = Credentials::default();
        if let Some(path) = &self.ca {
            let pem = trusted::of_option("--history-ca", path)?;
            credentials = credentials
                .authorities(&pem)
                .map_err(|error| trusted::wrong("--history-ca", path, &error))?;
        }
        if let Some(path) = &self.token {
            let text =
                String::from_utf8_lossy(&trusted::of_option("--history-token", path)?).into_owned();
            let with = credentials.token(text.trim());
            credentials = with.map_err(|error| trusted::wrong("--history-token", path, &error))?;
        }
        Ok(credentials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_needs_https_and_a_file() {
        let open = |url: &str, token: Option<&str>| {
            let history = Some(url.parse().unwrap());
            let options = HistoryOptions {
                history,
                history_token: token.map(PathBuf::from),
                ..HistoryOptions::default()
            };
            HistorySource::open(options)
                .map(|source| source.map(|source| source.server.to_string()))
        };
        assert_eq!(
            HistorySource::open(HistoryOptions::default())
                .unwrap()
                .map(|_| ()),
            None
        );
        assert_eq!(
            open("http://a:9090", None).unwrap().as_deref(),
            Some("a:9090")
        );
        assert!(
            open("http://a:9090", Some("/none"))
                .unwrap_err()
                .contains("https")
        );
        assert!(
            open("https://a:9090", Some("/none"))
                .unwrap_err()
                .contains("/none of --history-token")
        );
    }
}
