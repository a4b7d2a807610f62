//! The receiver for PostgreSQL: each batch is one transaction.
//!
//! A batch inserts the windows first. The windows that the table did not contain are new, and the
//! batch inserts only their entries. So a batch whose outcome is unknown can be sent again.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, SinkExt as _};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Transaction};

use super::columns::{PgMetric, PgTable};
use super::link::PgLink;
use super::options::PostgresOptions;
use super::text::{MetricRows, PgCell, gap, window};
use crate::config::duration;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, SeriesName, StreamItem,
    StreamWindow,
};
use crate::receivers::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};
use crate::rows::head::entries_of;
use crate::rows::identifier::LONGEST;
use crate::rows::shapes::{PlacedWindow, ShapeGroup, by_shape};
use crate::rows::shown::shown_rows;

/// The time that a batch may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of bytes of rows that are sent at once.
const CHUNK: usize = 1 << 18;
/// The settings of a transaction. The server must release the locks of a transaction whose client
/// has disconnected, and must have acknowledged windows on its disk.
const SETTINGS: &str = "SET LOCAL idle_in_transaction_session_timeout = '60s'; \
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

/// A database.
pub struct PostgresReceiver {
    options: Arc<PostgresOptions>,
    limits: BatchLimits,
    /// The connection; `None` before the first use and after a failure. The next use makes a new
    /// one.
    link: Option<PgLink>,
}

/// The identity of a row in the table of windows, or of gaps.
type RowKey = (String, String, String, i64);

/// Windows of a batch that share their tables.
struct TableGroup<'a> {
    tables: Arc<[PgMetric]>,
    windows: Vec<PlacedWindow<'a>>,
}

/// The reason why a batch was not stored.
enum BatchFailure {
    Server(Error),
    Document(SendError),
}

impl From<Error> for BatchFailure {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl PostgresReceiver {
    pub fn new(options: Arc<PostgresOptions>, limits: BatchLimits) -> Self {
        Self {
            options,
            limits,
            link: None,
        }
    }

    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        let options = Arc::clone(&self.options);
        // A failure drops the connection, together with its transaction and the list of known
        // tables.
        let mut link = match self.link.take() {
            Some(link) if !link.client.is_closed() => link,
            _ => PgLink::open(&options).await?,
        };
        let fixed = link.fixed_tables(&options).await?;
        let groups = groups(&mut link, &options, batch).await?;
        let stored = stored(&mut link, &options, &fixed, batch, &groups).await;
        let fates = stored.map_err(|failure| match failure {
            BatchFailure::Server(error) => options.failed(&error),
            BatchFailure::Document(error) => error,
        })?;
        self.link = Some(link);
        Ok(Receipt(fates))
    }
}

impl Receiver for PostgresReceiver {
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
        let (target, schema, probe) = (
            self.options.target(),
            &self.options.schema,
            &item.series.probe,
        );
        format!("{item} -> {target} table {schema}.\"{probe}.DIRECTION.METRIC\"")
    }

    fn content(&self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        shown_rows(window, most)
    }
}

/// Returns the windows of a batch with their tables. Makes missing tables.
async fn groups<'a>(
    link: &mut PgLink,
    options: &PostgresOptions,
    batch: &'a [Arc<StreamItem>],
) -> Result<Vec<TableGroup<'a>>, SendError> {
    let mut groups = Vec::new();
    for ShapeGroup { first, windows } in by_shape(batch)? {
        groups.push(TableGroup {
            tables: link.metric_tables(options, first).await?,
            windows,
        });
    }
    Ok(groups)
}

/// Writes a batch. Returns the fate of each item.
async fn stored(
    link: &mut PgLink,
    options: &PostgresOptions,
    (windows, gaps): &(PgTable, PgTable),
    batch: &[Arc<StreamItem>],
    groups: &[TableGroup<'_>],
) -> Result<Vec<ItemFate>, BatchFailure> {
    let transaction = link.client.transaction().await?;
    transaction.batch_execute(SETTINGS).await?;
    let rows = groups.iter().flat_map(|group| &group.windows);
    let rows: Vec<Vec<PgCell>> = rows
        .map(|placed| window(&placed.window.name, &placed.head))
        .collect();
    let mut new = inserted(&transaction, &options.schema, windows, &rows).await?;
    let mut fates = vec![ItemFate::Repeat; batch.len()];
    for group in groups {
        // Only the first of two equal windows in a batch is new.
        let fresh: Vec<&PlacedWindow<'_>> = group
            .windows
            .iter()
            .filter(|placed| new.remove(&key(&placed.window.name)))
            .collect();
        fresh
            .iter()
            .for_each(|placed| fates[placed.at] = ItemFate::Stored);
        for table in group.tables.iter() {
            copy(&transaction, &options.schema, table, &fresh).await?;
        }
    }
    for (fate, item) in fates.iter_mut().zip(batch) {
        let StreamItem::Gap(lost) = &**item else {
            continue;
        };
        let sql = known(windows, gaps, &options.schema);
        let ((node, probe, instance, _), last) = (key(&lost.name), lost.last.cast_signed());
        let row = transaction
            .query_one(&sql, &[&node, &probe, &instance, &last])
            .await?;
        let known: i64 = row.try_get(0)?;
        if let Some(rest) = lost.after(known.cast_unsigned())
            && !inserted(&transaction, &options.schema, gaps, &[gap(&rest)])
                .await?
                .is_empty()
        {
            *fate = ItemFate::Stored;
        }
    }
    transaction.commit().await?;
    Ok(fates)
}

/// Returns the query for the last window of a series, up to a number, that the tables contain or
/// record as lost.
fn known(windows: &PgTable, gaps: &PgTable, schema: &str) -> String {
    let (windows, gaps) = (windows.address(schema), gaps.address(schema));
    let series = "node = $1 AND probe = $2 AND instance = $3";
    format!(
        "SELECT greatest(0, (SELECT max(seq) FROM {windows} WHERE {series} AND seq <= $4), \
         (SELECT max(least(last_seq, $4)) FROM {gaps} WHERE {series} AND first_seq <= $4))"
    )
}

fn key(name: &ItemName) -> RowKey {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*name.series;
    (
        node.clone(),
        probe.clone(),
        instance.clone(),
        name.seq.cast_signed(),
    )
}

/// Inserts the rows that a table does not contain. Returns the keys of these rows.
async fn inserted(
    transaction: &Transaction<'_>,
    schema: &str,
    table: &PgTable,
    rows: &[Vec<PgCell>],
) -> Result<HashSet<RowKey>, Error> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let columns: Vec<Vec<Option<&str>>> = (0..table.columns.len())
        .map(|at| {
            rows.iter()
                .map(|row| row.get(at).and_then(Option::as_deref))
                .collect()
        })
        .collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = columns
        .iter()
        .map(|column| column as &(dyn ToSql + Sync))
        .collect();
    let found = transaction
        .query(&table.insertion(schema), &parameters)
        .await?;
    let key = |row: &Row| {
        Ok((
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            row.try_get(3)?,
        ))
    };
    found.iter().map(key).collect()
}

/// Adds the entries of windows to the table of a metric.
async fn copy(
    transaction: &Transaction<'_>,
    schema: &str,
    table: &PgMetric,
    windows: &[&PlacedWindow<'_>],
) -> Result<(), BatchFailure> {
    if !windows
        .iter()
        .any(|placed| placed.head.has_entries(&table.metric))
    {
        return Ok(());
    }
    let sql = format!(
        "COPY {} ({}) FROM STDIN",
        table.table.address(schema),
        table.table.names()
    );
    let mut sink = pin!(transaction.copy_in::<_, Bytes>(&sql).await?);
    let mut buffer = BytesMut::new();
    for placed in windows {
        let (mut rows, mut full) = (MetricRows::new(table, &placed.window.name), Vec::new());
        let read = entries_of(placed.window, &table.metric, |entry| {
            rows.add(entry, &mut buffer);
            if buffer.len() >= CHUNK {
                full.push(buffer.split().freeze());
            }
        });
        read.map_err(BatchFailure::Document)?;
        for chunk in full {
            sink.send(chunk).await?;
        }
    }
    sink.send(buffer.freeze()).await?;
    sink.finish().await?;
    Ok(())
}

impl ReceiverOptions for PostgresOptions {
    const NAME: &'static str = "postgres";
    const SCHEMES: &'static [&'static str] = &["postgres", "postgresql"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        if url.path.is_empty() || url.path.contains('/') {
            return Err(format!("{}://HOST/DATABASE is expected", url.scheme));
        }
        let mut value = serde_json::json!({ "database": url.path });
        if !url.authority.is_empty() {
            // In a URL, the slashes in the directory of a socket are encoded.
            value["hosts"] = url
                .authority
                .split(',')
                .map(|host| host.replace("%2F", "/"))
                .collect();
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, message: &str| Err((field, message.to_owned()));
        if self.hosts.is_empty() || self.port == 0 {
            let field = if self.port == 0 { "port" } else { "hosts" };
            return wrong(
                field,
                "at least one host and a port are needed, as in db.example:5432",
            );
        }
        for host in &self.hosts {
            if host.contains('@') {
                return wrong(
                    "hosts",
                    "a host has no user and no password: write `user` and `passwordFile`",
                );
            }
            if self.place(host).is_none() {
                let message = format!(
                    "{host:?} is not a host; write HOST, HOST:PORT, or the directory of a socket"
                );
                return Err(("hosts", message));
            }
        }
        for (field, name) in [("database", &self.database), ("schema", &self.schema)] {
            if name.is_empty() || name.len() > LONGEST || name.contains('\0') {
                return Err((field, format!("a name of 1 to {LONGEST} bytes is expected")));
            }
        }
        if self.schema.starts_with("pg_") {
            return wrong(
                "schema",
                "PostgreSQL keeps names that begin with pg_ for itself",
            );
        }
        self.check_tls()
    }

    fn target(&self) -> String {
        let hosts: Vec<String> = self.places().map(|place| place.shown()).collect();
        format!("postgres://{}/{}", hosts.join(","), self.database)
    }

    fn identity(&self) -> String {
        format!("{} {}", self.target(), self.schema)
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let plain = BatchLimits::default();
        let linger = if setup.once {
            duration::SOON.min(plain.linger)
        } else {
            plain.linger
        };
        // A transaction waits for the server's disk once, so many windows share one.
        let limits = BatchLimits {
            items: 4096,
            bytes: plain.bytes.min(setup.memory / 4),
            linger,
        };
        Box::new(PostgresReceiver::new(Arc::new(self), limits))
    }
}
