//! The receiver: each batch is one insert into each table.
//!
//! No transaction spans several tables. So the receiver queries which windows each table contains,
//! before it sends the first windows of a series. After a failure, it queries all tables again.
//! Each table contains all rows of a window, or none.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::binary::{self, EntryRows};
use super::columns::{ChMetric, ChTable, gaps, text, windows};
use super::link::ChLink;
use super::options::ClickhouseOptions;
use super::server::ChServer;
use crate::config::duration;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, SeriesName, StreamGap,
    StreamItem, StreamWindow,
};
use crate::receivers::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};
use crate::rows::head::entries_of;
use crate::rows::identifier::digest;
use crate::rows::shapes::{PlacedWindow, ShapeGroup, by_shape};
use crate::rows::shown::shown_rows;

/// The time that a batch may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database.
pub struct ClickhouseReceiver {
    options: Arc<ClickhouseOptions>,
    stream: String,
    limits: BatchLimits,
    /// The connection; `None` before the first use and after a failure. The next use makes a new
    /// one.
    link: Option<ChLink>,
}

impl ClickhouseReceiver {
    pub fn new(options: Arc<ClickhouseOptions>, stream: String, limits: BatchLimits) -> Self {
        Self {
            options,
            stream,
            limits,
            link: None,
        }
    }

    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        // After a failure the state of the connection is dropped: the server may have done an
        // insert although its answer is missing.
        let mut link = match self.link.take() {
            Some(link) => link,
            None => ChLink::open(&self.options, &self.stream).await?,
        };
        let (groups, mut fates) = (by_shape(batch)?, vec![ItemFate::Repeat; batch.len()]);
        for ShapeGroup { first, windows } in &groups {
            for table in link.metric_tables(first).await?.iter() {
                add_entries(&mut link, table, windows).await?;
            }
        }
        // The table of windows comes last: a window in this table is also in all other tables.
        let rows: Vec<&PlacedWindow<'_>> = groups.iter().flat_map(|group| &group.windows).collect();
        for at in add_windows(&mut link, &rows).await? {
            fates[at] = ItemFate::Stored;
        }
        for (fate, item) in fates.iter_mut().zip(batch) {
            if let StreamItem::Gap(gap) = &**item
                && add_gap(&link.server, gap).await?
            {
                *fate = ItemFate::Stored;
            }
        }
        self.link = Some(link);
        Ok(Receipt(fates))
    }
}

impl Receiver for ClickhouseReceiver {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn send<'a>(
        &'a mut self,
        batch: &'a [Arc<StreamItem>],
    ) -> BoxFuture<'a, Result<Receipt, SendError>> {
        async move {
            let target = self.options.target();
            let stored = timeout(PATIENCE, self.store(batch)).await;
            stored.unwrap_or_else(|_| {
                Err(SendError::new(format!(
                    "{target}: no answer within {} s",
                    PATIENCE.as_secs()
                )))
            })
        }
        .boxed()
    }

    fn preview(&self, item: &ItemName) -> String {
        format!(
            "{item} -> {} table `{}.DIRECTION.METRIC`",
            self.options.target(),
            item.series.probe
        )
    }

    fn content(&self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        shown_rows(window, most)
    }
}

impl ReceiverOptions for ClickhouseOptions {
    const NAME: &'static str = "clickhouse";
    const SCHEMES: &'static [&'static str] = &["clickhouse", "clickhouse+https", "clickhouse+http"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        Self::of_url(url)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.checked()
    }

    fn target(&self) -> String {
        format!(
            "clickhouse+{}/{}",
            self.address().trim_end_matches('/'),
            self.database
        )
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let linger = if setup.once {
            duration::SOON.min(self.every())
        } else {
            self.every()
        };
        // A batch takes less memory than the stream has, so that it is full before feeds must wait
        // for its end.
        let limits = BatchLimits {
            items: 16_384,
            bytes: setup.memory / 8,
            linger,
        };
        Box::new(ClickhouseReceiver::new(
            Arc::new(self),
            setup.stream.clone(),
            limits,
        ))
    }
}

/// Returns those windows that a table does not have.
async fn fresh<'a, 'b>(
    link: &mut ChLink,
    table: &ChTable,
    windows: impl Iterator<Item = &'b PlacedWindow<'a>>,
) -> Result<Vec<&'b PlacedWindow<'a>>, SendError>
where
    'a: 'b,
{
    let windows: Vec<&PlacedWindow<'_>> = windows.collect();
    let names: Vec<&ItemName> = windows.iter().map(|placed| &placed.window.name).collect();
    link.look(table, &names).await?;
    Ok(windows
        .into_iter()
        .filter(|placed| link.held(table, &placed.window.name) != Some(true))
        .collect())
}

/// Adds the entries of windows to the table of a metric.
async fn add_entries(
    link: &mut ChLink,
    table: &ChMetric,
    windows: &[PlacedWindow<'_>],
) -> Result<(), SendError> {
    let counted = windows
        .iter()
        .filter(|placed| placed.head.has_entries(&table.metric));
    let fresh = fresh(link, &table.table, counted).await?;
    let mut out = Vec::new();
    for placed in &fresh {
        let mut rows = EntryRows::new(table, &placed.window.name);
        entries_of(placed.window, &table.metric, |entry| {
            rows.add(entry, &mut out);
        })?;
    }
    insert(
        &link.server,
        &table.table,
        fresh.iter().map(|placed| &placed.window.name),
        out,
    )
    .await
}

/// Adds windows to the table of windows. Returns the places of the windows that the table did not
/// contain.
async fn add_windows(
    link: &mut ChLink,
    rows: &[&PlacedWindow<'_>],
) -> Result<Vec<usize>, SendError> {
    let table = windows();
    let (fresh, mut out) = (fresh(link, &table, rows.iter().copied()).await?, Vec::new());
    fresh
        .iter()
        .for_each(|placed| binary::window(&placed.window.name, &placed.head, &mut out));
    insert(
        &link.server,
        &table,
        fresh.iter().map(|placed| &placed.window.name),
        out,
    )
    .await?;
    Ok(fresh.iter().map(|placed| placed.at).collect())
}

/// Inserts rows. The token identifies the windows and the columns: equal rows have equal tokens.
async fn insert<'a>(
    server: &ChServer,
    table: &ChTable,
    names: impl Iterator<Item = &'a ItemName>,
    rows: Vec<u8>,
) -> Result<(), SendError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut identity = format!("{}\n{}\n", table.name, table.names());
    names.for_each(|name| identity.push_str(&format!("{name}\n")));
    server.insert(table, &digest(&identity), rows).await
}

/// Adds a gap, except for the windows that the tables contain or record as lost. Returns whether
/// other windows remained.
async fn add_gap(server: &ChServer, gap: &StreamGap) -> Result<bool, SendError> {
    let (
        table,
        SeriesName {
            node,
            instance,
            probe,
        },
    ) = (gaps(), &*gap.name.series);
    let [node, probe, instance] = [node, probe, instance].map(|name| text(name));
    let [of_windows, of_gaps] =
        [&windows(), &table].map(|table| table.address(&server.options.database));
    let (series, last) = (
        format!("node = {node} AND probe = {probe} AND instance = {instance}"),
        gap.last,
    );
    let sql = format!(
        "SELECT max(known) FROM (SELECT max(seq) AS known FROM {of_windows} WHERE {series} AND seq <= {last} \
         UNION ALL SELECT max(least(last_seq, {last})) AS known FROM {of_gaps} WHERE {series} AND first_seq <= {last})"
    );
    let found = server.ask(&sql).await?;
    let known = found
        .first()
        .and_then(|row| row.first()?.as_u64())
        .unwrap_or_default();
    let Some(rest) = gap.after(known) else {
        return Ok(false);
    };
    let mut row = Vec::new();
    binary::gap(&rest, &mut row);
    server
        .insert(&table, &digest(&format!("{}\n{last}", rest.name)), row)
        .await?;
    Ok(true)
}
