//! The command line of `twinprobe-stream`, which `twinprobe stream` runs.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde_json::Value;

use crate::config::document::{SourceDocument, StreamDocument};
use crate::config::stream::{StreamConfig, StreamConfigError};

/// Send the windows of many daemons to other systems, each window once
#[derive(Debug, Parser)]
#[command(name = "twinprobe stream", bin_name = "twinprobe stream", version, after_help = EXAMPLES)]
pub struct StreamArgs {
    /// Configuration of the stream, in YAML or JSON
    #[arg(short, long, value_name = "FILE", conflicts_with_all = OPTIONS, required_unless_present_any = ["to", "rules"])]
    pub file: Option<PathBuf>,
    /// Daemon that windows come from; repeatable [default: unix:/run/twinprobe/twinprobe.sock]
    #[arg(long, value_name = "URL", num_args = 1..)]
    from: Vec<String>,
    /// File with a daemon on each line: URL, or NAME URL; # begins a comment
    #[arg(long, value_name = "FILE")]
    servers: Option<PathBuf>,
    /// Receiver of the windows, as nats://HOST/STREAM or file:///DIRECTORY; repeatable
    #[arg(long, value_name = "URL", num_args = 1..)]
    to: Vec<String>,
    /// File of a rule with `scope: fleet`: it judges the windows of all daemons together;
    /// repeatable
    #[arg(long, value_name = "FILE", num_args = 1..)]
    rules: Vec<PathBuf>,
    /// Keys that sign the notifications of rules, one per line: whsec_ and 24 to 64 bytes in
    /// base64; read for each notification
    #[arg(long, value_name = "FILE", requires = "rules")]
    notification_keys: Option<PathBuf>,
    /// Name of this stream as a collector; probes name it in window.collectors [default: stream]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Pattern of the names of probes whose windows are sent; repeatable [default: *]
    #[arg(long, value_name = "PATTERN")]
    probes: Vec<String>,
    /// Largest size of the documents that are on their way [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Address of /metrics and /healthz of the stream itself
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// File with the token for daemons; without it, TWINPROBE_TOKEN has the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities that sign the daemons' certificates (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificate that the stream shows to daemons (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of --cert, unless it is in the same file (PEM)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the messages instead of sending them; contact no receiver, acknowledge nothing
    #[arg(long, conflicts_with = "once")]
    pub dry_run: bool,
    /// Print the JSON Schema of the documents of each probe, one line for each shape, and end
    #[arg(long, conflicts_with_all = ["once", "dry_run"])]
    pub schema: bool,
    /// Send the windows that the daemons retain now, and end
    #[arg(long)]
    pub once: bool,
    /// Format of log lines
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: StreamLogFormat,
    /// Lowest level of the log lines that are written: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// The options that a file replaces.
const OPTIONS: [&str; 13] = [
    "from",
    "servers",
    "to",
    "rules",
    "notification_keys",
    "name",
    "probes",
    "memory",
    "listen",
    "token_file",
    "ca",
    "cert",
    "key",
];
const EXAMPLES: &str = "Examples, which docs/how-to/streams.md explains
  twinprobe stream --to file:///var/lib/windows --once
  twinprobe stream --from https://gw-1:9470 https://gw-2:9470 --token-file token --to nats://broker/WINDOWS
  twinprobe stream -f stream.yaml";

/// Formats of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamLogFormat {
    Text,
    Json,
}

impl StreamArgs {
    /// Reads the configuration, from the file or from the options.
    pub fn config(&self) -> Result<StreamConfig, StreamConfigError> {
        if let Some(file) = &self.file {
            return StreamConfig::read(file);
        }
        StreamConfig::of_options(StreamDocument {
            name: self.name.clone(),
            from: SourceDocument {
                servers: self.from.clone(),
                servers_file: self.servers.clone(),
                kubernetes: None,
                token_file: self.token_file.clone(),
                ca: self.ca.clone(),
                cert: self.cert.clone(),
                key: self.key.clone(),
                probes: self.probes.clone(),
            },
            to: self.to.iter().cloned().map(Value::String).collect(),
            rules: self.rules.clone(),
            notification_keys_file: self.notification_keys.clone(),
            memory: self.memory.clone().map(Value::String),
            listen: self.listen.clone(),
        })
    }
}
