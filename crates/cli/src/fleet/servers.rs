//! The list of daemons: `--server`, or a file.

use std::path::{Path, PathBuf};

use clap::Args;
use twinprobe_client::{NamedServer, Server};

use crate::error::CommandError;

/// The variable with the address of the daemon, for calls without an option.
const VARIABLE: &str = "TWINPROBE_SERVER";

/// The options that say which daemons a command talks to.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerOptions {
    /// Daemon for client commands; repeatable [env: TWINPROBE_SERVER] [default:
    /// unix:/run/twinprobe/twinprobe.sock]
    #[arg(long, global = true, value_name = "URL")]
    pub server: Vec<Server>,
    /// File with a daemon on each line: URL, or NAME URL and labels KEY=VALUE; # begins a comment
    #[arg(long, global = true, value_name = "FILE")]
    pub servers: Option<PathBuf>,
}

impl ServerOptions {
    /// Returns the daemons with their names: those of the file, then those of `--server`. Without
    /// either, the daemon of the environment or the default.
    pub fn named(&self) -> Result<Vec<NamedServer>, CommandError> {
        let mut found = match &self.servers {
            Some(path) => read(path)?,
            None => Vec::new(),
        };
        found.extend(self.server.iter().cloned().map(NamedServer::unnamed));
        if found.is_empty() {
            let address = std::env::var(VARIABLE)
                .ok()
                .filter(|address| !address.is_empty());
            let address = address.as_deref().unwrap_or(Server::DEFAULT);
            let server: Result<Server, _> = address.parse();
            let server = server
                .map_err(|error| CommandError::Servers(format!("{VARIABLE}={address}: {error}")))?;
            found.push(NamedServer::unnamed(server));
        }
        for (i, NamedServer { name, .. }) in found.iter().enumerate() {
            if found[..i].iter().any(|other| other.name == *name) {
                return Err(CommandError::Servers(format!(
                    "there are two servers {name:?}"
                )));
            }
        }
        Ok(found)
    }
}

fn read(path: &Path) -> Result<Vec<NamedServer>, CommandError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| CommandError::Read {
        path: path.to_owned(),
        source,
    })?;
    NamedServer::list(path, &text).map_err(CommandError::Servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, server: &[&str]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("servers");
        std::fs::write(&path, text).unwrap();
        let server = server
            .iter()
            .map(|server| server.parse().unwrap())
            .collect();
        let options = ServerOptions {
            server,
            servers: Some(path),
        };
        let names = options.named().map_err(|error| error.to_string())?;
        Ok(names
            .into_iter()
            .map(|it| format!("{}={}{:?}", it.name, it.server, it.labels).replace("{}", ""))
            .collect())
    }

    #[test]
    fn servers_are_read_from_a_file_and_from_the_command_line() {
        let found = named(
            "# all\nparis http://a:1 zone=west # near\n\nunix:/s\n",
            &["http://b:2"],
        )
        .unwrap();
        assert_eq!(
            found,
            [
                "paris=http://a:1{\"zone\": \"west\"}",
                "unix:/s=unix:/s",
                "http://b:2=http://b:2"
            ]
        );
        let default = ServerOptions::default().named().unwrap();
        assert_eq!(
            (default.len(), default[0].server.to_string().as_str()),
            (1, Server::DEFAULT)
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert!(
            named("http://a:1\nparis\n", &[])
                .unwrap_err()
                .contains("servers:2: paris: no server address")
        );
        assert!(
            named("a http://b:1 c\n", &[])
                .unwrap_err()
                .contains(":1: \"c\" can't be a label")
        );
        assert!(
            named("# none\n", &[])
                .unwrap_err()
                .contains("names no server")
        );
        assert!(
            named("a http://a:1\na http://b:1\n", &[])
                .unwrap_err()
                .contains("two servers \"a\"")
        );
    }
}
