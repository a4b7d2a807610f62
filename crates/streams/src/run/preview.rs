//! The windows that a stream would send, with their beginning, and their schema: `--dry-run` and
//! `--schema`. No receiver is contacted, and nothing is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use glob::Pattern;
use twinprobe_api::{ProbeStatus, RuleAction, RuleDocument};
use twinprobe_client::{Client, ClientError, WindowQuery};
use twinprobe_ebpf_common::window::Listing;
use twinprobe_ebpf_common::window::shape::WindowShape;

use super::watch::ProbeClaim;
use crate::config::stream::StreamConfig;
use crate::receiver::{ItemName, Receiver, SeriesName, StreamWindow};
use crate::receivers::kind::{Destination, ReceiverSetup};
use crate::rules::document::NamedRule;
use crate::schema;
use crate::sources::daemon::SourceDaemon;

/// The number of lines that are shown of the first window of each probe, for each receiver.
const LINES: usize = 5;
/// The characters of a line of content.
const SHOWN: usize = 160;

/// Writes a line for each window that the stream would send now, with the beginning of the first
/// one of each probe. Names the probes that it would leave out, and the probes that its rules
/// watch.
pub async fn preview(config: StreamConfig, out: &mut impl Write) -> Result<(), ClientError> {
    let StreamConfig {
        name,
        servers,
        credentials,
        probes,
        destinations,
        rules,
        memory,
        ..
    } = config;
    let receivers = receivers_of(destinations, &name, memory);
    // This holds, for each probe, the number of its windows and the nodes that have them.
    let mut found: BTreeMap<String, (u64, BTreeSet<String>)> = BTreeMap::new();
    let mut bytes = 0;
    for (server_name, address) in servers {
        let client = SourceDaemon::new(server_name.clone(), address, credentials.clone())?.client();
        for status in chosen(&client, &probes).await? {
            let probe = &status.name;
            let claim = ProbeClaim::of(&status, &name);
            if claim == ProbeClaim::Others {
                line(
                    out,
                    &format!(
                        "{server_name}: {probe} is left out: its window.collectors do not name {name}"
                    ),
                );
                continue;
            }
            let listing = listed(&client, &status, claim.collector().as_deref()).await?;
            let (count, nodes) = found.entry(probe.clone()).or_default();
            *count += listing.windows.len() as u64;
            nodes.insert(listing.node.clone());
            bytes += listing.windows.iter().map(|entry| entry.bytes).sum::<u64>();
            show_windows(&client, &status, &listing, &receivers, out).await;
            let lost = listing.lost_windows;
            if lost > 0 {
                line(out, &format!("{server_name}: {lost} of {probe} were lost"));
            }
        }
    }
    for rule in &rules {
        let (count, nodes) = found
            .get(&rule.document.watch)
            .map_or((0, 0), |(count, nodes)| (*count, nodes.len()));
        line(out, &judged(rule, count, nodes));
    }
    if !receivers.is_empty() {
        let windows: u64 = found.values().map(|(count, _)| count).sum();
        line(
            out,
            &format!("{windows} windows ({bytes} bytes in the store) would be sent; nothing was"),
        );
    }
    Ok(())
}

/// Makes the receivers of a stream. None of them is contacted yet.
fn receivers_of(
    destinations: Vec<Destination>,
    stream: &str,
    memory: usize,
) -> Vec<Box<dyn Receiver>> {
    let setup = ReceiverSetup {
        stream: stream.to_owned(),
        memory,
        once: true,
    };
    destinations
        .into_iter()
        .map(|destination| destination.receiver(&setup))
        .collect()
}

/// Writes a line for each window of a probe and each receiver, and the beginning of the first
/// window.
async fn show_windows(
    client: &Client,
    status: &ProbeStatus,
    listing: &Listing,
    receivers: &[Box<dyn Receiver>],
    out: &mut impl Write,
) {
    for (index, entry) in listing.windows.iter().enumerate() {
        let name = item(listing, status, entry.seq, &entry.start, &entry.end);
        for receiver in receivers {
            line(out, &receiver.preview(&name));
            if index == 0 {
                // The daemon may have removed the window since.
                if let Err(error) = content(client, &**receiver, &name, out).await {
                    line(out, &format!("    {error}"));
                }
            }
        }
    }
}

/// Writes the beginning of a window as a receiver would get it.
async fn content(
    client: &Client,
    receiver: &dyn Receiver,
    name: &ItemName,
    out: &mut impl Write,
) -> Result<(), ClientError> {
    let (probe, seq) = (&name.series.probe, name.seq);
    let document = client
        .shaped_window(probe, seq, receiver.format().media_type())
        .await?
        .body
        .into();
    let shape = Arc::new(client.shape(probe, seq).await?.read()?);
    let window = StreamWindow {
        name: name.clone(),
        document,
        shape,
    };
    // One additional line tells whether there are more.
    let lines = match receiver.content(&window, LINES + 1) {
        Ok(lines) => lines,
        Err(error) => vec![error.to_string()],
    };
    for text in lines.iter().take(LINES) {
        // Packets may have determined these texts, so control characters for the terminal must not
        // pass.
        let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let shown: String = plain.take(SHOWN).collect();
        let more = if shown.len() < text.len() {
            format!(" ... ({} bytes)", text.len())
        } else {
            String::new()
        };
        line(out, &format!("    {shown}{more}"));
    }
    if lines.len() > LINES {
        line(out, "    ...");
    }
    Ok(())
}

/// The work of a rule: the windows that it would judge, and its actions. URLs of notifications may
/// hold secrets.
fn judged(rule: &NamedRule, windows: u64, nodes: usize) -> String {
    let actions = rule.document.actions.iter().map(|action| match action {
        RuleAction::Apply(probe) => format!("apply {}", probe.name),
        RuleAction::Change(change) => format!("change {}", change.name),
        RuleAction::Delete(name) => format!("delete {name}"),
        RuleAction::Mark(_) => "mark".to_owned(),
        RuleAction::Notify(_) => "notify".to_owned(),
    });
    let (name, RuleDocument { watch, when, .. }) = (&rule.name, &rule.document);
    let actions = actions.collect::<Vec<_>>().join(", ");
    format!(
        "rule {name} would judge {windows} windows of {watch} on {nodes} nodes, when {when}: {actions}; nothing was judged"
    )
}

/// Writes a line for each shape of the windows that the stream would send now: the schema of their
/// documents.
pub async fn schemas(config: StreamConfig, out: &mut impl Write) -> Result<(), ClientError> {
    let StreamConfig {
        name,
        servers,
        credentials,
        probes,
        ..
    } = config;
    let mut told = BTreeSet::new();
    for (server_name, address) in servers {
        let client = SourceDaemon::new(server_name, address, credentials.clone())?.client();
        for status in chosen(&client, &probes).await? {
            let claim = ProbeClaim::of(&status, &name);
            if claim == ProbeClaim::Others {
                continue;
            }
            let listing = listed(&client, &status, claim.collector().as_deref()).await?;
            for entry in &listing.windows {
                let shape: WindowShape = client.shape(&status.name, entry.seq).await?.read()?;
                if told.insert((status.name.clone(), shape.digest.clone())) {
                    line(out, &schema::document(&status.name, &shape).to_string());
                }
            }
        }
    }
    Ok(())
}

/// Returns the probes of a daemon whose names match.
async fn chosen(client: &Client, probes: &[Pattern]) -> Result<Vec<ProbeStatus>, ClientError> {
    let list = client.probes().await?.read()?.probes;
    Ok(list
        .into_iter()
        .filter(|status| probes.iter().any(|pattern| pattern.matches(&status.name)))
        .collect())
}

async fn listed(
    client: &Client,
    status: &ProbeStatus,
    collector: Option<&str>,
) -> Result<Listing, ClientError> {
    let query = WindowQuery {
        after: None,
        wait: None,
        collector,
    };
    client.windows(&status.name, query).await?.read()
}

fn item(listing: &Listing, status: &ProbeStatus, seq: u64, start: &str, end: &str) -> ItemName {
    let series = SeriesName {
        node: listing.node.clone(),
        instance: listing.instance.clone(),
        probe: status.name.clone(),
    };
    ItemName {
        series: Arc::new(series),
        seq,
        start: start.into(),
        end: end.into(),
    }
}

fn line(out: &mut impl Write, text: &str) {
    // The reader of a preview may have closed the output, for example `head`.
    let _ = writeln!(out, "{text}");
}
