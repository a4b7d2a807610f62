//! The configuration as a file contains it.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "camelCase",
    expecting = "an object with `from` and `to`"
)]
pub struct StreamDocument {
    /// The name of the stream for daemons and receivers. Daemons know the stream as a collector of
    /// this name.
    pub name: Option<String>,
    #[serde(default)]
    pub from: SourceDocument,
    /// The receivers: URLs, or objects with one kind and its options.
    #[serde(default)]
    pub to: Vec<Value>,
    /// Files of rules over the windows of all daemons.
    #[serde(default)]
    pub rules: Vec<PathBuf>,
    /// A file with keys that sign the notifications of rules.
    pub notification_keys_file: Option<PathBuf>,
    /// The most bytes of documents that are in memory at once, as in `32MiB`.
    pub memory: Option<Value>,
    /// The address of `/metrics` and `/healthz`.
    pub listen: Option<String>,
}

/// The daemons, and the patterns of their probes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "camelCase",
    default,
    expecting = "an object with `servers`"
)]
pub struct SourceDocument {
    pub servers: Vec<String>,
    /// A file with one daemon on each line: URL, or NAME URL.
    pub servers_file: Option<PathBuf>,
    /// True, or options. The daemons are then those of a Service of Kubernetes.
    pub kubernetes: Option<Value>,
    pub token_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Patterns of names of probes; all probes without any.
    pub probes: Vec<String>,
}
