//! The windows that a stream would send, and their schema: `--dry-run` and `--schema`. No receiver is contacted, and nothing is acknowledged.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use glob::Pattern;
use twinprobe_api::ProbeStatus;
use twinprobe_client::{Client, ClientError, WindowQuery};
use twinprobe_ebpf_common::window::Listing;
use twinprobe_ebpf_common::window::shape::WindowShape;

use super::watch::ProbeClaim;
use crate::config::stream::StreamConfig;
use crate::receiver::{ItemName, Receiver, SeriesName};
use crate::receivers::kind::ReceiverSetup;
use crate::schema;
use crate::sources::daemon::SourceDaemon;

/// Writes a line for each window that the stream would send now, and for each probe that it would leave.
pub async fn preview(config: StreamConfig, out: &mut impl Write) -> Result<(), ClientError> {
    let StreamConfig { name, servers, credentials, probes, destinations, memory, .. } = config;
    let setup = ReceiverSetup { stream: name.clone(), memory, once: true };
    let receivers: Vec<Box<dyn Receiver>> =
        destinations.into_iter().map(|destination| destination.receiver(&setup)).collect();
    let (mut windows, mut bytes) = (0, 0);
    for (server_name, address) in servers {
        let client = SourceDaemon::new(server_name.clone(), address, credentials.clone())?.client();
        for status in chosen(&client, &probes).await? {
            let claim = ProbeClaim::of(&status, &name);
            if claim == ProbeClaim::Others {
                let probe = &status.name;
                line(
                    out,
                    &format!("{server_name}: {probe} is left: its window.collectors do not name {name}"),
                );
                continue;
            }
            let listing = listed(&client, &status, claim.collector().as_deref()).await?;
            for entry in &listing.windows {
                windows += 1;
                bytes += entry.bytes;
                let name = item(&listing, &status, entry.seq, &entry.start, &entry.end);
                for receiver in &receivers {
                    line(out, &receiver.preview(&name));
                }
            }
            if listing.lost_windows > 0 {
                line(out, &format!("{server_name}: {} of {} were lost", listing.lost_windows, status.name));
            }
        }
    }
    line(out, &format!("{windows} windows ({bytes} bytes in the store) would be sent; nothing was"));
    Ok(())
}

/// Writes a line for each shape of the windows that the stream would send now: the schema of their documents.
pub async fn schemas(config: StreamConfig, out: &mut impl Write) -> Result<(), ClientError> {
    let StreamConfig { name, servers, credentials, probes, .. } = config;
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
    Ok(list.into_iter().filter(|status| probes.iter().any(|pattern| pattern.matches(&status.name))).collect())
}

async fn listed(
    client: &Client,
    status: &ProbeStatus,
    collector: Option<&str>,
) -> Result<Listing, ClientError> {
    let query = WindowQuery { after: None, wait: None, collector };
    client.windows(&status.name, query).await?.read()
}

fn item(listing: &Listing, status: &ProbeStatus, seq: u64, start: &str, end: &str) -> ItemName {
    let series = SeriesName {
        node: listing.node.clone(),
        instance: listing.instance.clone(),
        probe: status.name.clone(),
    };
    ItemName { series: Arc::new(series), seq, start: start.into(), end: end.into() }
}

fn line(out: &mut impl Write, text: &str) {
    // The reader of a preview may have seen enough.
    let _ = writeln!(out, "{text}");
}
