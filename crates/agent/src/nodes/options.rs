//! The options of `serve` about nodes, and the files that they name.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use twinprobe_client::{Credentials, NamedServer};
use twinprobe_state_files::trusted;

/// The most nodes: each answer has its share of the daemon's memory.
const MOST_NODES: usize = 256;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct NodesOptions {
    /// File with the daemons that the console shows side by side, one on each line: URL, or NAME
    /// URL and labels KEY=VALUE;
    /// # begins a comment
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    #[command(flatten)]
    pub credentials: NodeCredentials,
}

/// The files with the credentials that the daemon shows to nodes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NodeCredentials {
    /// Token for these daemons, of the role collector; read for each question
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub nodes_token_file: Option<PathBuf>,
    /// Authorities that have signed their certificates (PEM); by default those of the system
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub nodes_ca: Option<PathBuf>,
    /// Certificate that the daemon shows to them (PEM)
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub nodes_cert: Option<PathBuf>,
    /// Private key of --nodes-cert, unless it is in the same file (PEM)
    #[arg(long, value_name = "FILE", requires = "nodes_cert")]
    pub nodes_key: Option<PathBuf>,
}

/// The digest of all files of credentials. The bytes themselves are not kept.
pub type CredentialDigest = [u8; 32];

impl NodesOptions {
    /// Reads the daemons; none without the option. An error names the file, the line and what to
    /// do.
    pub fn read(&self) -> Result<Vec<NamedServer>, String> {
        let Some(path) = &self.nodes else {
            return Ok(Vec::new());
        };
        let bytes = trusted::of_option("--nodes", path)?;
        let text =
            String::from_utf8(bytes).map_err(|error| trusted::wrong("--nodes", path, &error))?;
        let nodes = NamedServer::list(path, &text).map_err(|error| format!("--nodes: {error}"))?;
        let at = |node: &NamedServer| format!("--nodes: {}:{}", path.display(), node.line);
        if let Some(node) = nodes.get(MOST_NODES) {
            return Err(format!(
                "{}: {MOST_NODES} nodes are the most; remove some",
                at(node)
            ));
        }
        let exposed = nodes.iter().find(|node| node.server.is_exposed());
        if let Some(node) = exposed.filter(|_| self.credentials.nodes_token_file.is_some()) {
            return Err(format!(
                "{}: {}: --nodes-token-file needs https beyond this machine",
                at(node),
                node.server
            ));
        }
        Ok(nodes)
    }
}

impl NodeCredentials {
    /// Reads the files. An error names the option and the file, and shows no secret.
    pub fn read(&self) -> Result<(Credentials, CredentialDigest), String> {
        let (mut credentials, mut digest) = (Credentials::default(), Sha256::new());
        let mut bytes_of = |option: &str, path: &PathBuf| {
            let bytes = trusted::of_option(option, path)?;
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(&bytes);
            Ok::<_, String>(bytes)
        };
        if let Some(path) = &self.nodes_token_file {
            let option = "--nodes-token-file";
            let text = String::from_utf8_lossy(&bytes_of(option, path)?).into_owned();
            credentials = credentials
                .token(text.trim())
                .map_err(|error| trusted::wrong(option, path, &error))?;
        }
        if let Some(path) = &self.nodes_ca {
            let pem = bytes_of("--nodes-ca", path)?;
            credentials = credentials
                .authorities(&pem)
                .map_err(|error| trusted::wrong("--nodes-ca", path, &error))?;
        }
        if let Some(path) = &self.nodes_cert {
            let mut pem = bytes_of("--nodes-cert", path)?;
            if let Some(key) = &self.nodes_key {
                pem.push(b'\n');
                pem.extend(bytes_of("--nodes-key", key)?);
            }
            credentials = credentials
                .identity(&pem)
                .map_err(|error| trusted::wrong("--nodes-cert", path, &error))?;
        }
        Ok((credentials, digest.finalize().into()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_bad_file_is_told_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nodes");
        let read = |text: &str, token: Option<&str>| {
            fs::write(&path, text).unwrap();
            let nodes_token_file = token.map(PathBuf::from);
            let credentials = NodeCredentials {
                nodes_token_file,
                ..NodeCredentials::default()
            };
            NodesOptions {
                nodes: Some(path.clone()),
                credentials,
            }
            .read()
        };
        let nodes = read("# all\na https://a:1 zone=1\n\nb unix:/b\n", Some("/none")).unwrap();
        assert_eq!((nodes.len(), nodes[1].line), (2, 4));
        assert!(read("a http://a:1\n", None).is_ok());
        for (text, expected) in [
            ("a https://a:1\nb\n", "nodes:2: b: no server address"),
            (
                "a https://a:1\na https://b:1\n",
                "nodes:2: there are two servers \"a\"",
            ),
            (
                "a https://a:1\nb http://192.0.2.1:1\n",
                "nodes:2: http://192.0.2.1:1: --nodes-token-file needs https",
            ),
            ("\n", "names no server"),
        ] {
            let error = read(text, Some("/none")).unwrap_err();
            assert!(
                error.starts_with("--nodes: ") && error.contains(expected),
                "{error}"
            );
        }
        let many: String = (0..=MOST_NODES)
            .map(|node| format!("n{node} unix:/{node}\n"))
            .collect();
        assert!(
            read(&many, None)
                .unwrap_err()
                .contains("nodes:257: 256 nodes are the most")
        );
        assert_eq!(NodesOptions::default().read(), Ok(Vec::new()));
    }

    #[test]
    fn credentials_are_told_apart_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let options = NodeCredentials {
            nodes_token_file: Some(path.clone()),
            ..NodeCredentials::default()
        };
        assert!(
            options
                .read()
                .unwrap_err()
                .contains("of --nodes-token-file")
        );
        let digest = |token: &str| {
            fs::write(&path, token).unwrap();
            let (credentials, digest) = options.read().unwrap();
            assert!(!format!("{credentials:?}").contains(token));
            digest
        };
        assert_eq!(digest("secret-1"), digest("secret-1"));
        assert_ne!(digest("secret-1"), digest("secret-2"));
        fs::write(&path, "a\nb").unwrap();
        let error = options.read().unwrap_err();
        assert!(error.contains("the token can't be used"), "{error}");
    }
}
