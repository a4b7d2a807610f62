//! The state of a probe at a daemon of a fleet, and the probe's numbers so far.

use jiff::{SignedDuration, Timestamp};
use twinprobe_api::{ConfigDocument, NodeReport, ProbeStatus};
use twinprobe_fleet::{Observed, digest, failed_inserts, report};

use crate::client::windows::WindowQuery;
use crate::client::{Client, LargestEntries};
use crate::error::ClientError;

/// The time that counts as a window if the clock closes no windows of the probe.
const INSTEAD_OF_A_WINDOW: SignedDuration = SignedDuration::from_secs(10);

/// A configuration that a fleet wants on a node.
#[derive(Clone, Copy, Debug)]
pub struct WantedProbe<'a> {
    pub name: &'a str,
    /// The name of its revision.
    pub revision: &'a str,
    pub config: &'a ConfigDocument,
    /// The windows after which the probe is judged.
    pub windows: u32,
    /// True if the insertions that found no room count. Once all judged windows are there, the
    /// client reads the document of each.
    pub reads_inserts: bool,
}

/// The answers about a probe that a client need not ask for again.
#[derive(Clone, Debug, Default)]
pub struct KnownDeployment {
    /// The probe, by its `instance`, and the number of its revision, which has the wanted
    /// configuration; `None` before the first look.
    of: Option<(String, u64)>,
    /// The time since which the probe has this revision.
    since: Timestamp,
    /// The observations about the judged windows, and the number of lost windows at that time.
    judged: Option<(u64, Observed)>,
}

impl KnownDeployment {
    /// Tells whether the probe still has the revision that the client has compared: a revision
    /// never changes.
    fn is_of(&self, status: &ProbeStatus) -> bool {
        let of = self.of.as_ref();
        of.is_some_and(|(instance, revision)| {
            *instance == status.instance && *revision == status.revision
        })
    }

    /// Returns the observations about the judged windows, unless windows were lost since.
    fn judged(&self, status: &ProbeStatus, wanted: WantedProbe<'_>) -> Option<Observed> {
        let (lost, observed) = self.judged.filter(|_| self.is_of(status))?;
        (lost == status.windows.statistics.lost && observed.windows >= wanted.windows)
            .then_some(observed)
    }
}

/// The probe that the daemon has under the name.
#[derive(Clone, Debug)]
pub enum NodeAnswer {
    Absent,
    /// The probe has another configuration.
    Other(Box<ProbeStatus>),
    /// The probe has the wanted configuration, and this is the report about the probe.
    Wanted(Box<NodeReport>),
}

/// Asks the daemon of `node` for the state of a probe. `known` is from the last call, or empty.
pub async fn deployed(
    client: &Client,
    node: &str,
    wanted: WantedProbe<'_>,
    known: &mut KnownDeployment,
) -> Result<NodeAnswer, ClientError> {
    let answer = client
        .status_and_windows(wanted.name, known.of.is_none())
        .await;
    let status = match answer.and_then(|answer| answer.read()) {
        Ok(status) => status,
        Err(ClientError::Refused(problem)) if problem.status == 404 => {
            return Ok(NodeAnswer::Absent);
        }
        Err(error) => return Err(error),
    };
    if known.of.is_some() && !known.is_of(&status) {
        *known = KnownDeployment::default();
        return Box::pin(deployed(client, node, wanted, known)).await;
    }
    if known.of.is_none() && status.config.as_ref().map(digest) != Some(digest(wanted.config)) {
        return Ok(NodeAnswer::Other(Box::new(status)));
    }
    let observed = match known.judged(&status, wanted) {
        Some(observed) => observed,
        None => observed(client, &status, wanted, known).await?,
    };
    known.judged =
        (observed.windows >= wanted.windows).then_some((status.windows.statistics.lost, observed));
    Ok(NodeAnswer::Wanted(Box::new(report(
        node,
        wanted.revision,
        &status,
        observed,
    ))))
}

/// Counts the windows that began with this configuration, and their losses.
async fn observed(
    client: &Client,
    status: &ProbeStatus,
    wanted: WantedProbe<'_>,
    known: &mut KnownDeployment,
) -> Result<Observed, ClientError> {
    if !known.is_of(status) {
        *known = present_revision(client, status, wanted.name).await?;
    }
    let since = known.since;
    let window = wanted.config.window.as_ref();
    let is_scheduled = window.is_some_and(|window| window.interval.is_some());
    if !is_scheduled {
        return unscheduled(client, status, wanted, since).await;
    }
    let newest = status.windows.statistics.newest.unwrap_or_default();
    let after = newest.saturating_sub(u64::from(wanted.windows));
    let query = WindowQuery {
        after: Some(after),
        ..WindowQuery::default()
    };
    let listing = client.windows(wanted.name, query).await?.read()?;
    let own = listing
        .windows
        .iter()
        .filter(|window| time(&window.start).is_some_and(|start| start >= since));
    let own: Vec<u64> = own
        .map(|window| window.seq)
        .take(wanted.windows as usize)
        .collect();
    let counted = status.windows.revision.unwrap_or_default();
    let closed = u32::try_from(counted.closed)
        .unwrap_or(u32::MAX)
        .min(wanted.windows);
    let mut observed = Observed {
        windows: closed,
        failed_inserts: 0,
        lost_windows: listing.lost_windows,
    };
    if own.len() < closed as usize {
        // The daemon has removed windows that a collector has acknowledged.
        observed.failed_inserts = counted.failed_inserts;
        return Ok(observed);
    }
    observed.windows = own.len() as u32;
    let reads = wanted.reads_inserts && observed.windows >= wanted.windows;
    for seq in own.into_iter().filter(|_| reads) {
        let document = client
            .window(
                wanted.name,
                seq,
                "application/json",
                LargestEntries::default(),
            )
            .await;
        // A window may have been removed since the list was made.
        observed.failed_inserts += document.as_ref().map_or(0, inserts);
    }
    Ok(observed)
}

/// Returns the revision that the probe has now, and the time since which it has this revision.
async fn present_revision(
    client: &Client,
    status: &ProbeStatus,
    name: &str,
) -> Result<KnownDeployment, ClientError> {
    let revisions = client.revisions(name).await?.read()?.revisions;
    let current = revisions.iter().find(|revision| revision.current);
    let since = current
        .and_then(|revision| time(&revision.created))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    // Another revision may have come between the two requests.
    let of = current
        .filter(|current| current.revision == status.revision)
        .map(|_| (status.instance.clone(), status.revision));
    Ok(KnownDeployment {
        of,
        since,
        judged: None,
    })
}

/// Returns the observations about a probe whose windows the clock does not close: its run time
/// counts as windows.
async fn unscheduled(
    client: &Client,
    status: &ProbeStatus,
    wanted: WantedProbe<'_>,
    since: Timestamp,
) -> Result<Observed, ClientError> {
    let windows = periods(status, since);
    let failed_inserts = match wanted.reads_inserts && windows >= wanted.windows {
        true => inserts(
            &client
                .peek(wanted.name, "application/json", LargestEntries::default())
                .await?,
        ),
        false => 0,
    };
    Ok(Observed {
        windows,
        failed_inserts,
        lost_windows: 0,
    })
}

fn inserts(document: &crate::answer::Answer<crate::client::Document>) -> u64 {
    failed_inserts(&document.body).unwrap_or_default()
}

/// Returns how many windows the run time of a probe without a schedule counts as. The daemon's
/// clock decides if the daemon measures the cost of probes.
fn periods(status: &ProbeStatus, since: Timestamp) -> u32 {
    let live = status
        .cost
        .iter()
        .flat_map(|cost| &cost.live)
        .filter_map(|live| time(&live.measured))
        .max();
    let run = live.unwrap_or_else(Timestamp::now).duration_since(since);
    u32::try_from(run.as_secs() / INSTEAD_OF_A_WINDOW.as_secs()).unwrap_or_default()
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
