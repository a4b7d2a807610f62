//! The rows of the store for windows, baselines and series of windows.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Weak};

use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_store::{
    self as store, Connection, Database, OptionalExtension as _, Result, Row, params,
};

use crate::body::head::ClosedBy;
use crate::body::stored::{BodySource, StoredWindow};

/// The fate of a window in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// No client has taken the window yet.
    Closed,
    /// The client that closed the window has received all of it.
    Taken,
    /// The window is acknowledged, and kept because it is the newest.
    Acknowledged,
    /// The window is damaged and set aside.
    Damaged,
    /// The window is in no list; it is kept because later windows hold only the changes in its
    /// sums.
    BuiltOn,
}

/// The bits of a row's form for the state of the window. The bits above them hold a distance: the
/// window's number minus the number of the window with whole sums that begins its chain of changes.
const FORM_BITS: u32 = 4;

impl Form {
    const ALL: [Self; 5] = [
        Self::Closed,
        Self::Taken,
        Self::Acknowledged,
        Self::Damaged,
        Self::BuiltOn,
    ];

    fn of(number: i64) -> Option<Self> {
        usize::try_from(number & ((1 << FORM_BITS) - 1))
            .ok()
            .and_then(|number| Self::ALL.get(number))
            .copied()
    }
}

/// The windows of one probe, as the store has them.
#[derive(Debug)]
pub struct WindowSeries {
    pub id: i64,
    pub name: String,
    pub state: Vec<u8>,
    /// The windows, each with its form; `None` if the row is damaged.
    pub windows: Vec<(FoundWindow, Option<Form>)>,
    pub baselines: BTreeMap<(u64, u64), Baseline>,
}

/// A baseline in the store; its key is the number of the open window and the serial of the
/// deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    pub id: i64,
    pub bytes: u64,
    pub is_file: bool,
}

/// A window of a probe, as it was found in the store at a start.
#[derive(Debug)]
pub struct FoundWindow {
    pub entry: WindowEntry,
    pub closed_by: ClosedBy,
    pub instance: String,
    pub from: u64,
    pub reports: u64,
    pub id: i64,
    pub is_file: bool,
}

impl FoundWindow {
    pub fn of(self, source: Weak<dyn BodySource>) -> Arc<StoredWindow> {
        let Self {
            entry,
            closed_by,
            instance,
            from,
            reports,
            id,
            is_file,
        } = self;
        Arc::new(StoredWindow {
            entry,
            closed_by,
            instance,
            from,
            reports,
            id,
            is_file,
            source,
        })
    }
}

/// Reads every series.
pub fn load(database: &Database) -> io::Result<Vec<WindowSeries>> {
    database.read(|connection| {
        let mut all: BTreeMap<i64, WindowSeries> = BTreeMap::new();
        let mut statement = connection.prepare("SELECT id, name, state FROM series")?;
        for series in statement.query_map([], series)? {
            let series = series?;
            all.insert(series.id, series);
        }
        let mut statement = connection.prepare(
            "SELECT id, series, instance, seq, form, closed_by, start, \"end\", bytes, lost, digest, body IS NULL \
             FROM windows ORDER BY id",
        )?;
        let mut rows = statement.query([])?;
        let mut before = i64::MIN;
        while let Some(row) = rows.next()? {
            let (of, window, form) = window(row)?;
            // A damaged page number leads to unrelated rows. An export reads everything that it
            // can.
            if std::mem::replace(&mut before, window.id) >= window.id && !database.is_read_only() {
                return Err(store::damaged("the rows of windows are out of order"));
            }
            match all.get_mut(&of) {
                Some(series) => series.windows.push((window, form)),
                None => tracing::error!(id = window.id, "a window of the store belongs to no probe"),
            }
        }
        let mut statement =
            connection.prepare("SELECT id, series, seq, serial, bytes, body IS NULL FROM baselines")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(series) = all.get_mut(&row.get(1)?) {
                let baseline = Baseline { id: row.get(0)?, bytes: row.get(4)?, is_file: row.get(5)? };
                series.baselines.insert((row.get(2)?, row.get(3)?), baseline);
            }
        }
        Ok(all.into_values().collect())
    })
}

fn series(row: &Row<'_>) -> Result<WindowSeries> {
    let (id, name, state) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(WindowSeries {
        id,
        name,
        state,
        windows: Vec::new(),
        baselines: BTreeMap::new(),
    })
}

/// Returns a window's row, and the number of its series. An unreadable row counts as damaged, and
/// its readable columns are used.
fn window(row: &Row<'_>) -> Result<(i64, FoundWindow, Option<Form>)> {
    let number = |column: usize| row.get::<_, i64>(column).unwrap_or_default();
    let count = |column: usize| row.get::<_, u64>(column).unwrap_or_default();
    let text = |column: usize| row.get::<_, String>(column).unwrap_or_default();
    let (id, series, form, closed_by) = (row.get(0)?, number(1), number(4), number(5));
    let found = FoundWindow {
        entry: WindowEntry {
            seq: count(3),
            start: text(6),
            end: text(7),
            bytes: count(8),
        },
        closed_by: closed_by_of(closed_by),
        instance: text(2),
        from: count(3).saturating_sub(u64::try_from(form >> FORM_BITS).unwrap_or_default()),
        reports: count(9),
        id,
        is_file: row.get(11)?,
    };
    let (instance, entry, reports) = (&found.instance, &found.entry, found.reports);
    let facts = Facts {
        id,
        series,
        instance,
        entry,
        form,
        closed_by,
        reports,
    };
    let known: Vec<u8> = row.get(10).unwrap_or_default();
    let form = Form::of(form).filter(|_| facts.digest() == known[..]);
    Ok((series, found, form))
}

/// The columns of a window's row that its digest covers.
struct Facts<'a> {
    id: i64,
    series: i64,
    instance: &'a str,
    entry: &'a WindowEntry,
    form: i64,
    closed_by: i64,
    reports: u64,
}

impl Facts<'_> {
    fn digest(&self) -> [u8; 8] {
        let Self {
            id,
            series,
            instance,
            entry,
            form,
            closed_by,
            reports,
        } = self;
        let WindowEntry {
            seq,
            start,
            end,
            bytes,
        } = entry;
        let text = format!(
            "{id} {series} {instance} {seq} {form} {closed_by} {start} {end} {bytes} {reports}"
        );
        let mut digest = [0; 8];
        digest.copy_from_slice(&Sha256::digest(text)[..8]);
        digest
    }
}

/// A row that can be written, without its body.
#[derive(Clone, Debug)]
pub struct WindowRow {
    pub id: i64,
    series: i64,
    instance: String,
    entry: WindowEntry,
    form: i64,
    closed_by: i64,
    reports: u64,
    digest: [u8; 8],
}

impl WindowRow {
    pub fn new(series: i64, window: &StoredWindow, form: Form) -> Self {
        let (id, entry, reports) = (window.id, window.entry.clone(), window.reports);
        let behind = i64::try_from(entry.seq - window.from).unwrap_or_default();
        let (form, closed_by) = (
            form as i64 | behind << FORM_BITS,
            number_of(window.closed_by),
        );
        let facts = Facts {
            id,
            series,
            instance: &window.instance,
            entry: &entry,
            form,
            closed_by,
            reports,
        };
        let digest = facts.digest();
        Self {
            id,
            series,
            instance: window.instance.clone(),
            entry,
            form,
            closed_by,
            reports,
            digest,
        }
    }

    pub fn insert(&self, connection: &Connection, body: Option<&[u8]>) -> Result<()> {
        let WindowEntry {
            seq,
            start,
            end,
            bytes,
        } = &self.entry;
        connection
            .prepare_cached(
                "INSERT INTO windows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute(params![
                self.id,
                self.series,
                self.instance,
                seq,
                self.form,
                self.closed_by,
                start,
                end,
                bytes,
                self.reports,
                self.digest,
                body
            ])
            .map(drop)
    }

    /// Writes the form of the window into its row.
    pub fn update(&self, connection: &Connection) -> Result<()> {
        connection
            .prepare_cached("UPDATE windows SET form = ?2, digest = ?3 WHERE id = ?1")?
            .execute(params![self.id, self.form, self.digest])
            .map(drop)
    }
}

pub fn delete_window(connection: &Connection, id: i64) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM windows WHERE id = ?1")?
        .execute([id])
        .map(drop)
}

const WINDOW_BODY: &str = "SELECT body FROM windows WHERE id = ?1";

/// Returns the body of a window; `None` if there is no such row.
pub fn body(database: &Database, table: SqlTable, id: i64) -> io::Result<Option<Vec<u8>>> {
    let sql = match table {
        SqlTable::Windows => WINDOW_BODY,
        SqlTable::Baselines => "SELECT body FROM baselines WHERE id = ?1",
    };
    database.read(|connection| {
        connection
            .prepare_cached(sql)?
            .query_row([id], |row| row.get(0))
            .optional()
    })
}

/// Returns the bodies of those windows that are in the store.
pub fn window_bodies(database: &Database, ids: &[i64]) -> io::Result<HashMap<i64, Vec<u8>>> {
    database.read(|connection| {
        // A transaction takes the locks of the file once.
        let transaction = connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(WINDOW_BODY)?;
        let body = |&id: &i64| {
            let body: Option<Option<Vec<u8>>> =
                statement.query_row([id], |row| row.get(0)).optional()?;
            Ok(body.flatten().map(|body| (id, body)))
        };
        ids.iter().map(body).filter_map(Result::transpose).collect()
    })
}

#[derive(Clone, Copy, Debug)]
pub enum SqlTable {
    Windows,
    Baselines,
}

pub fn save_series(connection: &Connection, id: i64, name: &str, state: &[u8]) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO series VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET state = excluded.state",
        )?
        .execute(params![id, name, state])
        .map(drop)
}

pub fn delete_series(connection: &Connection, id: i64) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM series WHERE id = ?1")?
        .execute([id])
        .map(drop)
}

pub fn insert_baseline(
    connection: &Connection,
    series: i64,
    (seq, serial): (u64, u64),
    baseline: &Baseline,
    body: Option<&[u8]>,
) -> Result<()> {
    connection
        .prepare_cached("INSERT INTO baselines VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            baseline.id,
            series,
            seq,
            serial,
            baseline.bytes,
            body
        ])
        .map(drop)
}

pub fn delete_baseline(connection: &Connection, id: i64) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM baselines WHERE id = ?1")?
        .execute([id])
        .map(drop)
}

fn number_of(closed_by: ClosedBy) -> i64 {
    match closed_by {
        ClosedBy::Read => 0,
        // The store keeps the window of a page like a client's window, so that collectors see it
        // after a start.
        ClosedBy::Request | ClosedBy::Page => 1,
        ClosedBy::Schedule => 2,
    }
}

fn closed_by_of(number: i64) -> ClosedBy {
    match number {
        0 => ClosedBy::Read,
        2 => ClosedBy::Schedule,
        _ => ClosedBy::Request,
    }
}
