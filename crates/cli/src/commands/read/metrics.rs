//! `twinprobe metrics`.

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use twinprobe_api::{ConfigDocument, LastRead};
use twinprobe_client::{Answer, Client, ClientError, Document, LargestEntries};
use twinprobe_ebpf_common::Format;

use crate::commands::read::merge;
use crate::commands::read::picture::{self, Picture};
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::exact;
use crate::output::format::OutputFormat;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::times;
use crate::output::view::OutputView;

#[derive(Debug, Args)]
pub struct Metrics {
    /// The probe
    name: String,
    /// Format of the metrics
    #[arg(short, long, value_enum, default_value_t = OutputFormat::TABLE)]
    output: OutputFormat,
    #[command(flatten)]
    picture: Picture,
    /// With --top, choose the rows by this field of the value, for example `bytes`; by default by
    /// the first counter
    #[arg(long, value_name = "FIELD", requires = "top", conflicts_with = "sort")]
    by: Option<String>,
    /// Show only this metric; may be given several times
    #[arg(long, value_name = "METRIC")]
    metric: Vec<String>,
    /// Show the counts of the open window so far, and take nothing from other readers; packets
    /// change the counts meanwhile
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
        self.check(client).await?;
        let largest = self.picture.largest(self.by.as_deref());
        let document = read(
            client,
            &self.name,
            self.output.media_type(),
            self.peek,
            largest,
        )
        .await?;
        if self.output.is_table() {
            let mut document: Value = document.read()?;
            only(&mut document, &self.metric);
            let by = self.by.as_deref();
            print::print(
                self.draw(client, &document, by, self.output.screen())
                    .await?,
            )?;
            if is_empty(&document)
                && let Some(before) = before(client, &self.name, &document).await
            {
                print::complain(&taken(&self.name, &before));
            }
            return Ok(());
        }
        match self.output.view().filter(|_| !self.metric.is_empty()) {
            Some(view) => {
                let mut document: Value = document.parsed(exact::parse)?;
                only(&mut document, &self.metric);
                print::print(exact::written(
                    view.structured(&document)?.unwrap_or_default(),
                ))
            }
            None => print::print(self.output.show(&document)?),
        }
    }

    /// Refuses metrics that the probe does not have, before a reading closes a window.
    async fn check(&self, client: &Client) -> Result<(), CommandError> {
        if self.metric.is_empty() {
            return Ok(());
        }
        if self.output.view().is_none() {
            return Err(CommandError::NotOneMetric);
        }
        let status = client.status(&self.name).await?.read()?;
        // A later version may have written the configuration.
        let Some(known) = status.config.as_ref().map(names) else {
            return Ok(());
        };
        match self.metric.iter().find(|metric| !known.contains(metric)) {
            None => Ok(()),
            Some(metric) => Err(CommandError::NoMetric {
                name: self.name.clone(),
                metric: metric.clone(),
                known: known.join(", "),
            }),
        }
    }

    /// Shows the documents of all daemons, separately or merged.
    async fn of_many(self, session: &Session) -> Result<(), CommandError> {
        let Some(view) = self.output.view() else {
            return Err(CommandError::NotOfMany);
        };
        let ask = async |node: &Node| {
            // The numbers of several daemons are added before the largest are known.
            let largest = if self.merge {
                LargestEntries::default()
            } else {
                self.picture.largest(self.by.as_deref())
            };
            self.check(&node.client).await?;
            let (mut document, status) =
                ask(&node.client, &self.name, self.peek, self.merge, largest).await?;
            only(&mut document, &self.metric);
            Ok::<_, CommandError>((document, status))
        };
        let (mut found, mut failed) = (Vec::new(), 0);
        let answers = session.fleet.each(ask).await;
        for (node, answer) in session.fleet.nodes().iter().zip(answers) {
            match answer {
                Ok((document, status)) => {
                    found.push(merge::NodePart {
                        node: node.name.clone(),
                        document,
                        status,
                    });
                }
                Err(error) => {
                    let text = session.reporter.error(&error);
                    print::complain(&format!("{}: {text}", node.name));
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
                    let first = &session.fleet.nodes()[0].client;
                    print::print(self.draw(first, &merged, None, view.screen()).await?)?;
                }
            }
        } else {
            self.show_each(session, view, found).await?;
        }
        let total = session.fleet.nodes().len();
        if failed == 0 {
            Ok(())
        } else {
            Err(CommandError::Nodes { failed, total })
        }
    }
}

impl Metrics {
    async fn draw(
        &self,
        client: &Client,
        document: &Value,
        by: Option<&str>,
        screen: Screen,
    ) -> Result<String, CommandError> {
        let config = picture::config(client, &self.name).await;
        self.picture
            .draw(client, document, config.as_ref(), by, screen)
            .await
    }

    async fn show_each(
        &self,
        session: &Session,
        view: OutputView,
        mut found: Vec<merge::NodePart>,
    ) -> Result<(), CommandError> {
        let documents: Vec<&Value> = found.iter().map(|part| &part.document).collect();
        if let Some(text) = view.structured(&documents)? {
            return print::print(exact::written(text));
        }
        let mut text = String::new();
        let by = self.by.as_deref();
        for part in &mut found {
            exact::rounded(&mut part.document);
            let Some(node) = session
                .fleet
                .nodes()
                .iter()
                .find(|node| node.name == part.node)
            else {
                continue;
            };
            let drawn = self
                .draw(&node.client, &part.document, by, view.screen())
                .await?;
            text.push_str(&format!("== {}\n{drawn}\n", part.node));
        }
        print::print(text)
    }
}

/// Returns the names of the metrics of a probe, each once.
pub fn names(config: &ConfigDocument) -> Vec<String> {
    let directions = [&config.ingress, &config.egress].into_iter().flatten();
    let metrics = directions.flat_map(|direction| direction.metrics.iter().flatten());
    let mut names: Vec<String> = Vec::new();
    for name in metrics.filter_map(|metric| metric.name.clone().or_else(|| metric.map.clone())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Leaves the metrics with these names in a document; all if none is named.
fn only(document: &mut Value, names: &[String]) {
    for direction in ["ingress", "egress"] {
        let metrics = document.get_mut(direction).and_then(Value::as_object_mut);
        if let Some(metrics) = metrics.filter(|_| !names.is_empty()) {
            metrics.retain(|name, _| names.contains(name));
        }
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
    let directions = ["ingress", "egress"]
        .into_iter()
        .filter_map(|direction| document[direction].as_object());
    let mut entries = directions
        .flat_map(|metrics| metrics.values())
        .flat_map(|metric| metric["entries"].as_array().into_iter().flatten());
    document["window"].is_object() && entries.all(|entry| merge::is_zero(&entry["value"]))
}

/// Returns the reader of the window before the window of a document.
async fn before(client: &Client, name: &str, document: &Value) -> Option<LastRead> {
    let status = client.status(name).await.ok()?.read().ok()?;
    let seq = document["window"]["seq"].as_u64()?;
    status
        .windows
        .last_reads
        .into_iter()
        .find(|last| last.seq < seq)
}

/// Returns a note for a reading that has found nothing: the reader of the numbers, and how to see
/// them.
fn taken(name: &str, last: &LastRead) -> String {
    let since = times::ago(&last.at, Timestamp::now())
        .map_or_else(String::new, |ago| format!(" ({ago} before)"));
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
    let document = read(client, name, Format::Json.media_type(), peek, largest).await?;
    let document = document.parsed(exact::parse)?;
    let status = if merge {
        Some(client.status(name).await?.json()?)
    } else {
        None
    };
    Ok((document, status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_are_shown_by_their_names() {
        let config = json!({ "ingress": { "metrics": [{ "name": "a", "map": "m" }, { "map": "b" }] },
            "egress": { "metrics": [{ "name": "a", "map": "m" }] } });
        let config: ConfigDocument = serde_json::from_value(config).unwrap();
        assert_eq!(names(&config), ["a", "b"]);
        let document = json!({ "probe": "p", "ingress": { "a": 1, "b": 2 }, "egress": { "a": 3 } });
        let chosen = |wanted: &[&str]| {
            let mut document = document.clone();
            only(
                &mut document,
                &wanted.iter().map(ToString::to_string).collect::<Vec<_>>(),
            );
            document
        };
        assert_eq!(chosen(&[]), document);
        assert_eq!(
            chosen(&["b"]),
            json!({ "probe": "p", "ingress": { "b": 2 }, "egress": {} })
        );
    }

    #[test]
    fn a_reading_that_finds_nothing_says_who_was_before() {
        let document = |entries: Value| json!({ "window": { "seq": 2 }, "ingress": { "m": { "entries": entries } } });
        assert!(
            is_empty(&document(json!([])))
                && is_empty(&document(json!([{ "key": 0, "value": { "packets": 0 } }])))
        );
        assert!(!is_empty(&document(json!([{ "key": 0, "value": [0, 1] }]))));
        assert!(
            !is_empty(&json!({ "ingress": {} })),
            "a reading without a window takes nothing"
        );
        let last = LastRead {
            by: "token:grafana".into(),
            at: "2026-11-21T10:00:00Z".into(),
            seq: 7,
        };
        let note = taken("dns", &last);
        assert!(
            note.contains("since token:grafana read window 7 at ")
                && note.contains("windows dns --get 7"),
            "{note}"
        );
    }
}
