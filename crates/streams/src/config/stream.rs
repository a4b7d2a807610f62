//! A valid configuration, or every mistake of an invalid one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use glob::Pattern;
use serde_json::Value;
use tokio::sync::watch;
use twinprobe_api::{ParseError, parse_any_yaml, place_of};
use twinprobe_client::Server;
use twinprobe_ebpf_common::finding::Rejection;

use super::document::{SourceDocument, StreamDocument};
use super::mistake::StreamMistake;
use super::size;
use crate::receivers::kind::Destination;
use crate::rules::document::NamedRule;
use crate::rules::signing::KeyFile;
use crate::sources::credentials::CredentialFiles;
use crate::sources::daemon::DaemonAddress;
use crate::sources::kubernetes::{KubernetesError, KubernetesOptions, KubernetesService};

/// The default limit for the bytes of documents in memory.
const MEMORY: usize = 32 << 20;
/// The least limit for each receiver. A smaller one is not enough for a single ordinary window.
const LEAST_MEMORY: usize = 1 << 20;
/// The name of a stream that has none.
const NAME: &str = "stream";

/// Daemons by their names; the set changes while the program runs.
pub type KnownDaemons = watch::Receiver<BTreeMap<String, DaemonAddress>>;

/// A stream, as its configuration describes it.
#[derive(Debug)]
pub struct StreamConfig {
    pub name: String,
    /// The daemons by their names.
    pub servers: Vec<(String, DaemonAddress)>,
    /// The Kubernetes Service that names the daemons.
    pub kubernetes: Option<KubernetesService>,
    /// Daemons that another part of the program has found.
    pub known: Option<KnownDaemons>,
    pub credentials: CredentialFiles,
    pub probes: Vec<Pattern>,
    pub destinations: Vec<Destination>,
    pub rules: Vec<NamedRule>,
    /// The most bytes of documents in memory, for all receivers together.
    pub memory: usize,
    pub listen: Option<SocketAddr>,
}

/// The reason why a configuration is refused: each mistake with its field and line.
#[derive(Debug, thiserror::Error)]
#[error("{}", .mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct StreamConfigError {
    pub mistakes: Vec<StreamMistake>,
}

/// The positions of mistakes in a document.
struct MistakePlaces<'a> {
    file: Option<(&'a Path, &'a str)>,
    mistakes: Vec<StreamMistake>,
}

impl MistakePlaces<'_> {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let field = field.into();
        let place = self.file.map_or_else(String::new, |(path, text)| {
            let place = place_of(text, &field).map(|(line, column)| format!(":{line}:{column}"));
            format!("{}{}", path.display(), place.unwrap_or_default())
        });
        self.mistakes.push(StreamMistake {
            place,
            field,
            message: message.into(),
        });
    }
}

impl StreamConfig {
    /// Reads a file in YAML or JSON.
    pub fn read(path: &Path) -> Result<Self, StreamConfigError> {
        let one = |place: String, field: String, message: String| StreamConfigError {
            mistakes: vec![StreamMistake {
                place,
                field,
                message,
            }],
        };
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            one(
                shown.clone(),
                String::new(),
                format!("can't be read: {error}"),
            )
        })?;
        let mut places = MistakePlaces {
            file: Some((path, &text)),
            mistakes: Vec::new(),
        };
        match parse_any_yaml::<StreamDocument>(text.as_bytes()) {
            Ok(document) => Self::checked(document, places),
            Err(ParseError::Malformed {
                message,
                line,
                column,
            }) => Err(one(
                format!("{shown}:{line}:{column}"),
                String::new(),
                message,
            )),
            Err(ParseError::Invalid(Rejection { findings, .. })) => {
                for finding in findings {
                    places.add(finding.field.unwrap_or_default(), finding.message);
                }
                Err(StreamConfigError {
                    mistakes: places.mistakes,
                })
            }
        }
    }

    /// Applies the options of the command line.
    pub fn of_options(document: StreamDocument) -> Result<Self, StreamConfigError> {
        Self::checked(
            document,
            MistakePlaces {
                file: None,
                mistakes: Vec::new(),
            },
        )
    }

    fn checked(
        document: StreamDocument,
        mut places: MistakePlaces<'_>,
    ) -> Result<Self, StreamConfigError> {
        let StreamDocument {
            name,
            from,
            to,
            rules,
            notification_keys_file,
            memory,
            listen,
        } = document;
        let name = name_of(name, &mut places);
        let keys = notification_keys_file.map(KeyFile);
        if let Some(Err(message)) = keys.as_ref().map(KeyFile::read) {
            places.add("notificationKeysFile", message);
        }
        let mut rules = rules_of(&rules, &mut places);
        rules
            .iter_mut()
            .for_each(|rule| rule.keys.clone_from(&keys));
        let destinations = if to.is_empty() && !rules.is_empty() {
            Vec::new()
        } else {
            destinations(to, &mut places)
        };
        let memory = memory_of(memory.as_ref(), &mut places);
        let listen = listen_of(listen.as_deref(), &mut places);
        let kubernetes = kubernetes(&from, &mut places);
        let servers = servers(&from, kubernetes.is_some(), &mut places);
        // A stream that has rules and no receivers reads only the probes that the rules watch.
        let probes = match destinations.is_empty() && !rules.is_empty() {
            true => rules
                .iter()
                .filter_map(|rule| Pattern::new(&Pattern::escape(&rule.document.watch)).ok())
                .collect(),
            false => patterns(&from.probes, &mut places),
        };
        let credentials = credentials_of(from, &mut places);
        if !places.mistakes.is_empty() {
            return Err(StreamConfigError {
                mistakes: places.mistakes,
            });
        }
        Ok(Self {
            name,
            servers,
            kubernetes,
            known: None,
            credentials,
            probes,
            destinations,
            rules,
            memory,
            listen,
        })
    }
}

impl StreamConfig {
    /// Replaces the Service with its present daemons.
    pub async fn resolved(mut self) -> Result<Self, KubernetesError> {
        if let Some(service) = self.kubernetes.take() {
            self.servers.extend(service.daemons().await?);
        }
        Ok(self)
    }
}

/// Returns the name of the stream.
fn name_of(name: Option<String>, places: &mut MistakePlaces<'_>) -> String {
    let name = name.unwrap_or_else(|| NAME.to_owned());
    if !is_collector_name(&name) {
        let rule = "1 to 64 letters, digits, '_', '.', '-' are allowed, a letter or digit first";
        places.add(
            "name",
            format!("{name:?} is not a name of a collector; {rule}"),
        );
    }
    name
}

/// Tells whether configurations of probes can have this name in `window.collectors`.
fn is_collector_name(name: &str) -> bool {
    let may = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(may)
}

fn rules_of(files: &[PathBuf], places: &mut MistakePlaces<'_>) -> Vec<NamedRule> {
    let mut found: Vec<NamedRule> = Vec::new();
    for path in files {
        match NamedRule::read(path) {
            Ok(rule) if found.iter().any(|other| other.name == rule.name) => {
                places.add(
                    "rules",
                    format!(
                        "there are two rules {:?}, the names of their files",
                        rule.name
                    ),
                );
            }
            Ok(rule) => found.push(rule),
            Err(mistakes) => places.mistakes.extend(mistakes),
        }
    }
    found
}

fn destinations(to: Vec<Value>, places: &mut MistakePlaces<'_>) -> Vec<Destination> {
    if to.is_empty() {
        places.add(
            "to",
            "a stream needs a receiver, as in `to: [ { file: { directory: /data/windows } } ]` or --to URL",
        );
    }
    let mut found: Vec<Destination> = Vec::new();
    for (index, value) in to.into_iter().enumerate() {
        match Destination::read(value) {
            Ok(mut destination) => {
                let same = found
                    .iter()
                    .filter(|other| other.label.split('-').next() == Some(&destination.label));
                let number = same.count() + 1;
                if number > 1 {
                    destination.label = format!("{}-{number}", destination.label);
                }
                if found
                    .iter()
                    .any(|other| other.identity == destination.identity)
                {
                    places.add(
                        format!("to[{index}]"),
                        format!("{} is listed twice", destination.target),
                    );
                }
                found.push(destination);
            }
            Err((path, message)) => {
                let dot = if path.is_empty() { "" } else { "." };
                places.add(format!("to[{index}]{dot}{path}"), message);
            }
        }
    }
    found
}

fn memory_of(memory: Option<&Value>, places: &mut MistakePlaces<'_>) -> usize {
    let read = match memory {
        None => return MEMORY,
        Some(Value::String(text)) => size::bytes(text),
        Some(Value::Number(number)) => size::bytes(&number.to_string()),
        Some(_) => Err("a size is expected; write it as 32MiB".to_owned()),
    };
    match read {
        Ok(size) if size >= LEAST_MEMORY => return size,
        Ok(size) => places.add(
            "memory",
            format!("{size} bytes are too few; 1MiB is the least"),
        ),
        Err(message) => places.add("memory", message),
    }
    MEMORY
}

/// Returns the address of `/metrics` and `/healthz`.
fn listen_of(address: Option<&str>, places: &mut MistakePlaces<'_>) -> Option<SocketAddr> {
    let address = address?;
    let read = address.parse().ok();
    if read.is_none() {
        places.add(
            "listen",
            format!("{address:?} is not an address; write IP:PORT, as in 127.0.0.1:9471"),
        );
    }
    read
}

fn patterns(probes: &[String], places: &mut MistakePlaces<'_>) -> Vec<Pattern> {
    let all = ["*".to_owned()];
    let probes = if probes.is_empty() { &all[..] } else { probes };
    let mut found = Vec::new();
    for (index, text) in probes.iter().enumerate() {
        match Pattern::new(text) {
            Ok(pattern) => found.push(pattern),
            Err(error) => {
                places.add(
                    format!("from.probes[{index}]"),
                    format!("{text:?} is not a pattern: {error}"),
                );
            }
        }
    }
    found
}

fn kubernetes(from: &SourceDocument, places: &mut MistakePlaces<'_>) -> Option<KubernetesService> {
    let read = KubernetesOptions::read(from.kubernetes.clone()?);
    let service = read.and_then(|options| options.map(KubernetesOptions::service).transpose());
    service.unwrap_or_else(|(path, message)| {
        places.add(format!("from.kubernetes{path}"), message);
        None
    })
}

fn servers(
    from: &SourceDocument,
    has_more: bool,
    places: &mut MistakePlaces<'_>,
) -> Vec<(String, DaemonAddress)> {
    let mut found: Vec<(String, Server)> = Vec::new();
    for (index, text) in from.servers.iter().enumerate() {
        match text.parse::<Server>() {
            Ok(server) => found.push((server.to_string(), server)),
            Err(error) => places.add(format!("from.servers[{index}]"), format!("{text}: {error}")),
        }
    }
    if let Some(path) = &from.servers_file {
        match servers_of(path) {
            Ok(servers) => found.extend(servers),
            Err(message) => places.add("from.serversFile", message),
        }
    }
    if from.servers.is_empty() && from.servers_file.is_none() && !has_more {
        let server = Server::DEFAULT.parse::<Server>();
        found.extend(server.map(|server| (server.to_string(), server)));
    }
    for (index, (name, server)) in found.iter().enumerate() {
        if found[..index]
            .iter()
            .any(|(other, known)| other == name || known == server)
        {
            places.add("from.servers", format!("{server} is listed twice"));
        }
    }
    found
        .into_iter()
        .map(|(name, server)| (name, server.into()))
        .collect()
}

/// Returns the files with the credentials for daemons, and adds a mistake if one can't be used.
fn credentials_of(from: SourceDocument, places: &mut MistakePlaces<'_>) -> CredentialFiles {
    let credentials = CredentialFiles {
        token_file: from.token_file,
        ca: from.ca,
        cert: from.cert,
        key: from.key,
    };
    if let Err((field, message)) = credentials.read() {
        places.add(format!("from.{field}"), message);
    }
    credentials
}

/// Reads a file with a daemon on each line: URL, or NAME URL; `#` begins a comment. Labels after
/// the URL are for fleets, and skipped.
fn servers_of(path: &PathBuf) -> Result<Vec<(String, Server)>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |what: String| format!("{}:{}: {what}", path.display(), number + 1);
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, address) = match &words[..] {
            [] => continue,
            [address] => (*address, *address),
            [name, address, labels @ ..] => {
                match labels.iter().find(|label| !label.contains('=')) {
                    None => (*name, *address),
                    Some(label) => {
                        return Err(at(format!(
                            "{label:?} can't be a label; write URL, or NAME URL KEY=VALUE"
                        )));
                    }
                }
            }
        };
        let server = address
            .parse::<Server>()
            .map_err(|error| at(format!("{address}: {error}")))?;
        found.push((name.to_owned(), server));
    }
    if found.is_empty() {
        Err(format!("{} names no server", path.display()))
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
