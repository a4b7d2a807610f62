//! The options by which the operator reaches daemons.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use twinprobe_streams::{CredentialFiles, EndpointNames, KeyFile};

/// Options of rules over the fleet.
#[derive(Clone, Debug, Args)]
pub struct JudgeOptions {
    /// File with a token for the daemons' API; with it the operator judges rules with `scope:
    /// fleet`
    #[arg(long, value_name = "FILE")]
    daemons_token_file: Option<PathBuf>,
    /// Certificate for the daemons' API, instead of a token or beside it (PEM)
    #[arg(long, value_name = "FILE")]
    daemons_cert: Option<PathBuf>,
    /// Private key of --daemons-cert, unless it is in the same file (PEM)
    #[arg(long, value_name = "FILE", requires = "daemons_cert")]
    daemons_key: Option<PathBuf>,
    /// Authorities that sign the daemons' certificates (PEM); those of the system by default
    #[arg(long, value_name = "FILE")]
    daemons_ca: Option<PathBuf>,
    /// Service in the operator's namespace whose endpoints are the daemons
    #[arg(long, value_name = "NAME", default_value = "twinprobe")]
    daemons_service: String,
    /// Name of the Service's port for the API
    #[arg(long, value_name = "NAME", default_value = EndpointNames::PORT)]
    daemons_port: String,
    /// Name in the daemons' certificates [default: SERVICE.NAMESPACE.svc]
    #[arg(long, value_name = "HOST")]
    daemons_name: Option<String>,
    /// Most MiB of windows on their way to each rule with `scope: fleet`
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    rule_memory: u16,
    /// Keys that sign the notifications of rules with `scope: fleet`, one per line: whsec_ and 24
    /// to 64 bytes in base64
    #[arg(long, value_name = "FILE")]
    notification_keys: Option<PathBuf>,
}

/// The way to the daemons.
#[derive(Clone, Debug)]
pub struct DaemonAccess {
    pub credentials: CredentialFiles,
    pub service: String,
    pub names: EndpointNames,
    /// The most bytes of windows on their way to each rule.
    pub memory: usize,
    /// The keys that sign notifications.
    pub keys: Option<KeyFile>,
}

impl JudgeOptions {
    /// Returns the way to the daemons, if there are credentials for it.
    pub fn access(&self, namespace: &str) -> anyhow::Result<Option<DaemonAccess>> {
        if self.daemons_token_file.is_none() && self.daemons_cert.is_none() {
            return Ok(None);
        }
        let credentials = CredentialFiles {
            token_file: self.daemons_token_file.clone(),
            ca: self.daemons_ca.clone(),
            cert: self.daemons_cert.clone(),
            key: self.daemons_key.clone(),
        };
        credentials.read().map_err(|(field, message)| {
            let option = if field == "tokenFile" {
                "token-file"
            } else {
                field
            };
            anyhow!("--daemons-{option}: {message}")
        })?;
        let service = self.daemons_service.clone();
        let server_name = self
            .daemons_name
            .clone()
            .unwrap_or_else(|| EndpointNames::server(&service, namespace));
        let names = EndpointNames {
            port: self.daemons_port.clone(),
            tls: true,
            server_name,
        };
        names
            .check()
            .map_err(|message| anyhow!("--daemons-name: {message}"))?;
        let keys = self.notification_keys.clone().map(KeyFile);
        if let Some(Err(message)) = keys.as_ref().map(KeyFile::read) {
            return Err(anyhow!("--notification-keys: {message}"));
        }
        let memory = usize::from(self.rule_memory) << 20;
        Ok(Some(DaemonAccess {
            credentials,
            service,
            names,
            memory,
            keys,
        }))
    }
}
