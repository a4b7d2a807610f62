//! The list of daemons: `--server`, or a file.

use std::path::{Path, PathBuf};

use clap::Args;
use twinprobe_client::Server;

use crate::error::CommandError;

/// The variable with the address of the daemon, where no option has one.
const VARIABLE: &str = "TWINPROBE_SERVER";

/// The options that say which daemons a command talks to.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerOptions {
    /// Daemon that client commands talk to; repeatable [env: TWINPROBE_SERVER] [default:
    /// unix:/run/twinprobe/twinprobe.sock]
    #[arg(long, global = true, value_name = "URL")]
    pub server: Vec<Server>,
    /// File with a daemon on each line: URL, or NAME URL; # begins a comment
    #[arg(long, global = true, value_name = "FILE")]
    pub servers: Option<PathBuf>,
}

impl ServerOptions {
    /// Returns the daemons with their names: those of the file, then those of `--server`. Where neither is given, that of
    /// the environment or the default.
    pub fn named(&self) -> Result<Vec<(String, Server)>, CommandError> {
        let mut found = match &self.servers {
            Some(path) => read(path)?,
            None => Vec::new(),
        };
        found.extend(self.server.iter().map(|server| (server.to_string(), server.clone())));
        if found.is_empty() {
            let address = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty());
            let address = address.as_deref().unwrap_or(Server::DEFAULT);
            let server: Result<Server, _> = address.parse();
            let server =
                server.map_err(|error| CommandError::Servers(format!("{VARIABLE}={address}: {error}")))?;
            found.push((server.to_string(), server));
        }
        for (i, (name, _)) in found.iter().enumerate() {
            if found[..i].iter().any(|(other, _)| other == name) {
                return Err(CommandError::Servers(format!("there are two servers {name:?}")));
            }
        }
        Ok(found)
    }
}

fn read(path: &Path) -> Result<Vec<(String, Server)>, CommandError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| CommandError::Read { path: path.to_owned(), source })?;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |what: &str| CommandError::Servers(format!("{}:{}: {what}", path.display(), number + 1));
        let line = line.split('#').next().unwrap_or_default();
        let (name, address) = match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => continue,
            [address] => (address, address),
            [name, address] => (name, address),
            _ => return Err(at("more than two words; write URL, or NAME URL")),
        };
        let server: Result<Server, _> = address.parse();
        found.push((name.to_owned(), server.map_err(|error| at(&format!("{address}: {error}")))?));
    }
    if found.is_empty() {
        return Err(CommandError::Servers(format!("{} names no server", path.display())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, server: &[&str]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("servers");
        std::fs::write(&path, text).unwrap();
        let server = server.iter().map(|server| server.parse().unwrap()).collect();
        let options = ServerOptions { server, servers: Some(path) };
        let names = options.named().map_err(|error| error.to_string())?;
        Ok(names.into_iter().map(|(name, server)| format!("{name}={server}")).collect())
    }

    #[test]
    fn servers_are_read_from_a_file_and_from_the_command_line() {
        let found = named("# all\nparis http://a:1 # west\n\nunix:/s\n", &["http://b:2"]).unwrap();
        assert_eq!(found, ["paris=http://a:1", "unix:/s=unix:/s", "http://b:2=http://b:2"]);
        let default = ServerOptions::default().named().unwrap();
        assert_eq!((default.len(), default[0].1.to_string().as_str()), (1, Server::DEFAULT));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert!(
            named("http://a:1\nparis\n", &[]).unwrap_err().contains("servers:2: paris: no server address")
        );
        assert!(named("a b c\n", &[]).unwrap_err().contains(":1: more than two words"));
        assert!(named("# none\n", &[]).unwrap_err().contains("names no server"));
        assert!(named("a http://a:1\na http://b:1\n", &[]).unwrap_err().contains("two servers \"a\""));
    }
}
