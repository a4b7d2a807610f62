//! `twinprobe metrics`.

mod rows;

use std::borrow::Cow;

use clap::{Args, ValueEnum};
use hyper::Method;
use serde_json::Value;
use twinprobe_exporter::Format;

use crate::client::http::{self, Reply};
use crate::client::{ClientError, Server, output};

#[derive(Debug, Args)]
pub struct Metrics {
    /// The probe
    name: String,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// How a document is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
    Xml,
    #[value(name = "openmetrics")]
    OpenMetrics,
}

impl Output {
    /// What the daemon is asked for.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Table | Self::Json => Format::Json,
            Self::Xml => Format::Xml,
            Self::OpenMetrics => Format::OpenMetrics,
        }
        .media_type()
    }

    /// A document as it is printed.
    pub(super) fn show(self, document: &Reply) -> Result<Cow<'_, [u8]>, ClientError> {
        if self == Self::Table {
            return Ok(Cow::Owned(render(&document.json()?, output::width()).into_bytes()));
        }
        Ok(Cow::Borrowed(&document.body))
    }
}

impl Metrics {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let path = http::probe_path(&self.name, "/metrics");
        let document = http::send(server, Method::GET, &path, self.output.media_type(), None).await?;
        Ok(output::print(&self.output.show(&document)?)?)
    }
}

/// One table per metric, each under a line that says what it is.
fn render(document: &Value, width: usize) -> String {
    let mut blocks = Vec::new();
    if let Some(window) = document["window"].as_object() {
        let part = |name| window.get(name).map(plain).unwrap_or_default();
        blocks.push(format!("window {}: {} to {}\n", part("seq"), part("start"), part("end")));
    }
    for direction in ["ingress", "egress"] {
        for (name, metric) in document[direction].as_object().into_iter().flatten() {
            blocks.push(title(direction, name, metric) + &rows::table(metric).render(width));
        }
    }
    if blocks.is_empty() { "no metrics\n".to_owned() } else { blocks.join("\n") }
}

fn title(direction: &str, name: &str, metric: &Value) -> String {
    let mut title = format!("{direction} {name} ({}", plain(&metric["type"]));
    if let Some(agg) = metric["agg"].as_str() {
        title.push_str(&format!(", {agg} over the CPUs"));
    }
    title.push(')');
    if let Some(help) = metric["help"].as_str().filter(|help| !help.is_empty()) {
        title.push_str(&format!(": {help}"));
    }
    if metric["entries"].as_array().is_none_or(Vec::is_empty) {
        title.push_str("\nno entries");
    }
    title + "\n"
}

/// A value without JSON's quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
