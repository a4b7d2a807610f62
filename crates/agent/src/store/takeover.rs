//! The state of an earlier version, which had files instead of the store: `probes/NAME.json`,
//! `expired/NAME.json` and `revisions/NAME/N.json` with the store's records, and `windows/NAME/`.
//! One transaction takes over this state, and then the files are removed. Nothing changes if a file
//! can't be read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use twinprobe_store::{Database, Durable, params};

use crate::store::error::{StoreError, failed};

/// The directories of an earlier version.
const DIRECTORIES: [&str; 4] = ["windows", "probes", "expired", "revisions"];
const UNREADABLE: &str = "unreadable";

type NamedRecords = Vec<(String, Vec<u8>)>;

/// Takes the state of an earlier version over, if there is one.
pub fn take_over(state_dir: &Path, database: &Arc<Database>) -> Result<(), StoreError> {
    let probes = state_dir.join("probes");
    if !DIRECTORIES.iter().any(|name| state_dir.join(name).exists()) {
        return Ok(());
    }
    let done = |connection: &twinprobe_store::Connection| {
        let sql = "SELECT EXISTS (SELECT 1 FROM probes) OR EXISTS (SELECT 1 FROM expired) OR EXISTS (SELECT 1 FROM series)";
        connection.query_row(sql, [], |row| row.get::<_, bool>(0))
    };
    let is_done = database.read(done).map_err(|source| StoreError::Read {
        what: "the probes".to_owned(),
        source,
    })?;
    if !is_done {
        let read = |name: &str, ending: &str| {
            let directory = state_dir.join(name);
            records(&directory, ending).map_err(failed("reading", &directory))
        };
        let (running, expired, unreadable) = (
            read("probes", "json")?,
            read("expired", "json")?,
            read("probes", UNREADABLE)?,
        );
        let mut revisions = Vec::new();
        let names: BTreeSet<String> = running
            .iter()
            .chain(&expired)
            .map(|(name, _)| name.clone())
            .collect();
        for name in &names {
            for (number, record) in read(&format!("revisions/{name}"), "json")? {
                if let Ok(number) = number.parse::<u64>() {
                    revisions.push((name.clone(), number, record));
                }
            }
        }
        let windows = twinprobe_windows::take_over(state_dir, &names);
        let windows = windows.map_err(failed("taking over", &state_dir.join("windows")))?;
        let count = names.len();
        let change = move |connection: &twinprobe_store::Connection| {
            for (sql, records) in [
                ("INSERT INTO probes VALUES (?1, ?2)", &running),
                (
                    "INSERT OR IGNORE INTO expired SELECT ?1, ?2 WHERE ?1 NOT IN (SELECT name FROM probes)",
                    &expired,
                ),
                ("INSERT INTO unreadable VALUES (?1, ?2)", &unreadable),
            ] {
                for (name, record) in records {
                    connection.execute(sql, params![name, record])?;
                }
            }
            for (name, number, record) in &revisions {
                connection.execute(
                    "INSERT INTO revisions VALUES (?1, ?2, ?3)",
                    params![name, number, record],
                )?;
            }
            windows(connection)
        };
        let committed = database.commit(Durable::Now, false, Box::new(change));
        committed.map_err(|source| StoreError::Write {
            what: "the state of an earlier version".to_owned(),
            source,
        })?;
        tracing::info!(
            probes = count,
            "the state of an earlier version was taken over"
        );
    }
    // The probes are removed last: as long as they are there, the next start continues here.
    for name in DIRECTORIES.iter().filter(|name| **name != "probes") {
        remove(&state_dir.join(name));
    }
    remove(&probes);
    Ok(())
}

/// Reads the files in a directory whose names have this ending. Returns their content by their
/// names without the ending.
fn records(directory: &Path, ending: &str) -> io::Result<NamedRecords> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NamedRecords::new()),
        entries => entries?,
    };
    let mut found = NamedRecords::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .filter(|name| !name.starts_with('.'));
        if let (Some(name), true) = (
            name,
            path.extension()
                .is_some_and(|extension| extension == ending),
        ) {
            found.push((name.to_owned(), fs::read(&path)?));
        }
    }
    Ok(found)
}

fn remove(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "files of an earlier version could not be removed");
    }
}
