//! Windows against a real store; `damage` has damaged files, `random` random sequences of
//! operations.

pub mod damage;
pub mod format;
pub mod fuzz;
pub mod golden;
pub mod model;
pub mod random;
pub mod retention;
pub mod scene;
pub mod sums;
pub mod takeover;
pub mod threads;

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use twinprobe_ebpf_common::{
    Aggregation, Context, Direction, DocumentOrigin, Format, MetricHead, Temporality, Window,
};
use twinprobe_ebpf_common::{Layout, MapKind, RawTable, TableLayout};
use twinprobe_store::{Connection, Database, Durable};

use crate::body::head::{ClosedBy, WindowHead};
use crate::body::stored::StoredWindow;
use crate::retention::ListBounds;
use crate::store::WindowStore;
use crate::windows::Windows;

/// Makes a directory in memory where that is possible: the tests do not cover a loss of power.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// The windows of all probes in a state directory.
pub fn store(directory: &Path) -> WindowStore {
    limited(directory, u64::MAX)
}

pub fn limited(directory: &Path, budget: u64) -> WindowStore {
    WindowStore::open(directory, &Database::open(directory).unwrap(), budget, 0).unwrap()
}

/// The windows of the probe `p`.
pub fn open(directory: &Path) -> Arc<Windows> {
    store(directory).of("p")
}

/// Changes the store in a way that no daemon does.
pub fn tamper(directory: &Path, sql: &str) {
    let database = Database::open(directory).unwrap();
    let sql = sql.to_owned();
    let change = Box::new(move |connection: &Connection| connection.execute_batch(&sql));
    database.commit(Durable::Now, false, change).unwrap();
}

fn layout(kind: MapKind, inner: Option<Arc<TableLayout>>) -> Arc<TableLayout> {
    Arc::new(TableLayout {
        kind,
        key: Layout::unsigned(4),
        value: Layout::unsigned(8),
        slots: 1,
        inner,
    })
}

fn metric(direction: Direction, name: &str, layout: Arc<TableLayout>) -> MetricHead {
    MetricHead {
        help: format!("help of {name}"),
        agg: Some(Aggregation::Max),
        temporality: Temporality::Cumulative,
        ..MetricHead::new(direction, name, &format!("map of {name}"), layout)
    }
}

pub fn head(seq: u64, closed_by: ClosedBy, lost_windows: u64) -> WindowHead {
    let inner = layout(MapKind::Hash, None);
    WindowHead {
        probe: "p".into(),
        origin: Some(Arc::new(DocumentOrigin {
            node: "gw-1".into(),
            instance: "4f0c".into(),
            labels: [("rack".into(), "7".into())].into(),
        })),
        interfaces: vec!["eth0".into()],
        approximate: None,
        window: Window {
            seq,
            start: format!("2026-11-21T10:00:00.{:09}Z", seq - 1),
            end: format!("2026-11-21T10:00:00.{seq:09}Z"),
            duration_ns: Some(1),
            clock_step_ns: None,
            quiesce_us: 71,
            lost_windows,
        },
        format: Format::Xml,
        context: Context {
            boot_time_ns: 1,
            interfaces: [(1, "lo".to_owned())].into(),
            ..Context::default()
        },
        skipped_before: 5,
        closed_by,
        metrics: vec![
            metric(Direction::Ingress, "a", layout(MapKind::Hash, None)),
            metric(
                Direction::Egress,
                "b",
                layout(MapKind::HashOfMaps, Some(inner)),
            ),
        ],
        hidden: Vec::new(),
        changes: None,
    }
}

/// Makes rows that differ from those of all other windows.
pub fn rows(seq: u64, size: usize) -> RawTable {
    let bytes = |length| seq.to_le_bytes().into_iter().cycle().take(length).collect();
    RawTable {
        keys: bytes(4 * size),
        values: bytes(8 * size),
        inner: Vec::new(),
    }
}

/// Commits a window with `size` rows.
pub fn commit(windows: &Arc<Windows>, seq: u64, size: usize) -> Arc<StoredWindow> {
    let mut writer = windows
        .write(&head(seq, ClosedBy::Read, windows.unreported_lost(seq)))
        .unwrap();
    writer.rows(0, &rows(seq, size)).unwrap();
    writer.commit().unwrap()
}

pub fn numbers(windows: &Windows) -> Vec<u64> {
    windows
        .list(0, ListBounds::default())
        .windows
        .iter()
        .map(|window| window.seq)
        .collect()
}

/// Returns the body of a window.
fn bytes(window: &StoredWindow) -> Vec<u8> {
    let content = window.source.upgrade().unwrap().content(window).unwrap();
    let mut bytes = vec![0; usize::try_from(content.len().unwrap()).unwrap()];
    content.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Lists the large bodies.
fn bodies(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().into_string().unwrap()
    };
    let Ok(entries) = std::fs::read_dir(directory.join(crate::BODIES)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}
