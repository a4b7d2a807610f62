//! `twinprobe metrics`.

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use twinprobe_api::LastRead;
use twinprobe_client::{Answer, Client, ClientError, Document, LargestEntries};

use crate::commands::read::merge;
use crate::commands::read::picture::Picture;
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::exact;
use crate::output::format::OutputFormat;
use crate::output::print;
use crate::output::times;
use crate::output::view::OutputView;

#[derive(Debug, Args)]
pub struct Metrics {
    /// The probe
    name: String,
    /// Format of the metrics
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    picture: Picture,
    /// With --top, choose the rows by this number of the value, as bytes; without it by the first counter
    #[arg(long, value_name = "FIELD", requires = "top", conflicts_with = "sort")]
    by: Option<String>,
    /// Show what the open window has counted so far, and take nothing from other readers; packets change it meanwhile
    #[arg(long)]
    peek: bool,
    /// Add up the documents of all servers, by the rules of each metric's `merge`
    #[arg(long)]
    merge: bool,
}

impl Metrics {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        if self.merge || session.fleet.nodes().len() > 1 {
            return self.of_many(session).await;
        }
        let client = session.fleet.one()?;
        let largest = self.picture.largest(self.by.as_deref());
        let document = read(client, &self.name, self.output.media_type(), self.peek, largest).await?;
        if self.output.is_table() {
            let document: Value = document.read()?;
            let by = self.by.as_deref();
            print::print(self.picture.draw_by(&document, by, self.output.screen())?)?;
            if is_empty(&document)
                && let Some(before) = before(client, &self.name, &document).await
            {
                print::complain(&taken(&self.name, &before));
            }
            return Ok(());
        }
        print::print(self.output.show(&document)?)
    }

    /// Shows the documents of all daemons, each by itself or as one.
    async fn of_many(self, session: &Session) -> Result<(), CommandError> {
        let Some(view) = self.output.view() else { return Err(CommandError::NotOfMany) };
        let ask = async |node: &Node| {
            // What several daemons have adds up before the largest are known.
            let largest =
                if self.merge { LargestEntries::default() } else { self.picture.largest(self.by.as_deref()) };
            ask(&node.client, &self.name, self.peek, self.merge, largest).await
        };
        let (mut found, mut failed) = (Vec::new(), 0);
        for (node, answer) in session.fleet.nodes().iter().zip(session.fleet.each(ask).await) {
            match answer {
                Ok((document, status)) => {
                    found.push(merge::NodePart { node: node.name.clone(), document, status });
                }
                Err(error) => {
                    print::complain(&format!("{}: {}", node.name, session.reporter.error(&error)));
                    failed += 1;
                }
            }
        }
        if self.merge && !found.is_empty() {
            let mut merged = merge::merge(&self.name, found);
            match view.structured(&merged)? {
                Some(text) => print::print(exact::written(text))?,
                None => {
                    exact::rounded(&mut merged);
                    print::print(self.picture.draw(&merged, view.screen())?)?;
                }
            }
        } else {
            self.show_each(view, found)?;
        }
        let total = session.fleet.nodes().len();
        if failed == 0 { Ok(()) } else { Err(CommandError::Nodes { failed, total }) }
    }
}

impl Metrics {
    fn show_each(&self, view: OutputView, mut found: Vec<merge::NodePart>) -> Result<(), CommandError> {
        let documents: Vec<&Value> = found.iter().map(|part| &part.document).collect();
        if let Some(text) = view.structured(&documents)? {
            return print::print(exact::written(text));
        }
        let mut text = String::new();
        for part in &mut found {
            exact::rounded(&mut part.document);
            let drawn = self.picture.draw_by(&part.document, self.by.as_deref(), view.screen())?;
            text.push_str(&format!("== {}\n{drawn}\n", part.node));
        }
        print::print(text)
    }
}

async fn read(
    client: &Client,
    name: &str,
    accept: &str,
    peek: bool,
    largest: LargestEntries<'_>,
) -> Result<Answer<Document>, ClientError> {
    match peek {
        true => client.peek(name, accept, largest).await,
        false => client.metrics(name, accept, largest).await,
    }
}

/// Tells whether a window has counted nothing: no entry, and in arrays nothing but zeros.
fn is_empty(document: &Value) -> bool {
    let directions =
        ["ingress", "egress"].into_iter().filter_map(|direction| document[direction].as_object());
    let mut entries = directions
        .flat_map(|metrics| metrics.values())
        .flat_map(|metric| metric["entries"].as_array().into_iter().flatten());
    document["window"].is_object() && entries.all(|entry| merge::is_zero(&entry["value"]))
}

/// Returns who has got the window before the one of a document.
async fn before(client: &Client, name: &str, document: &Value) -> Option<LastRead> {
    let status = client.status(name).await.ok()?.read().ok()?;
    let seq = document["window"]["seq"].as_u64()?;
    status.windows.last_reads.into_iter().find(|last| last.seq < seq)
}

/// Says where the numbers are that a reading did not find.
fn taken(name: &str, last: &LastRead) -> String {
    let since =
        times::ago(&last.at, Timestamp::now()).map_or_else(String::new, |ago| format!(" ({ago} before)"));
    format!(
        "note: nothing was counted since {} read window {} at {}{since}; `twinprobe windows {name} --get {}` shows that \
         window while it is retained, and `metrics --peek` takes nothing from others",
        last.by,
        last.seq,
        times::short(&last.at),
        last.seq
    )
}

/// Returns the document of one daemon and, to merge it, the status of the probe.
async fn ask(
    client: &Client,
    name: &str,
    peek: bool,
    merge: bool,
    largest: LargestEntries<'_>,
) -> Result<(Value, Option<Value>), CommandError> {
    let document = read(client, name, OutputFormat::Json.media_type(), peek, largest).await?;
    let document = document.parsed(exact::parse)?;
    let status = if merge { Some(client.status(name).await?.json()?) } else { None };
    Ok((document, status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reading_that_finds_nothing_says_who_was_before() {
        let document =
            |entries: Value| json!({ "window": { "seq": 2 }, "ingress": { "m": { "entries": entries } } });
        assert!(
            is_empty(&document(json!([])))
                && is_empty(&document(json!([{ "key": 0, "value": { "packets": 0 } }])))
        );
        assert!(!is_empty(&document(json!([{ "key": 0, "value": [0, 1] }]))));
        assert!(!is_empty(&json!({ "ingress": {} })), "a reading without a window takes nothing");
        let last = LastRead { by: "token:grafana".into(), at: "2026-11-21T10:00:00Z".into(), seq: 7 };
        let note = taken("dns", &last);
        assert!(
            note.contains("since token:grafana read window 7 at ") && note.contains("windows dns --get 7"),
            "{note}"
        );
    }
}
