//! The daemon's store. Tests look at it and damage it. Records are changed while no daemon runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use twinprobe_store::{Connection, FILE, OptionalExtension as _, params};

use crate::{Directories, binary};

/// The tables with rows that have the name of a probe.
const NAMED: [&str; 4] = ["probes", "expired", "revisions", "unreadable"];

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    state: PathBuf,
}

impl Store {
    /// Opens the store of a daemon that has run in these directories.
    pub fn open(directories: &Directories) -> Result<Self> {
        let state = directories.state();
        let path = file(directories);
        ensure!(path.exists(), "{} is not there", path.display());
        Ok(Self {
            connection: Connection::open(path)?,
            state,
        })
    }

    /// Changes the rows that the statements name.
    pub fn execute(&self, statements: &str) -> Result<()> {
        self.connection
            .execute_batch(statements)
            .with_context(|| statements.to_owned())
    }

    /// Returns the record of a probe.
    pub fn record(&self, probe: &str) -> Result<Vec<u8>> {
        self.record_in("probes", probe)?
            .with_context(|| format!("{probe} has no record"))
    }

    /// Returns the record of a probe in one of the tables [`NAMED`]; `None` if there is none.
    pub fn record_in(&self, table: &str, probe: &str) -> Result<Option<Vec<u8>>> {
        let sql = format!("SELECT record FROM {table} WHERE name = ?1");
        Ok(self
            .connection
            .query_row(&sql, [probe], |row| row.get(0))
            .optional()?)
    }

    /// Replaces the record of a probe.
    pub fn set_record(&self, probe: &str, record: impl AsRef<[u8]>) -> Result<()> {
        self.change(
            "UPDATE probes SET record = ?2 WHERE name = ?1",
            probe,
            record.as_ref(),
        )
    }

    /// Replaces the record of a probe and those of its revisions.
    pub fn set_all_records(&self, probe: &str, record: impl AsRef<[u8]>) -> Result<()> {
        self.change(
            "UPDATE revisions SET record = ?2 WHERE name = ?1",
            probe,
            record.as_ref(),
        )?;
        self.set_record(probe, record)
    }

    /// Changes the record of a probe as a document.
    pub fn edit(&self, probe: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut record = serde_json::from_slice(&self.record(probe)?)?;
        change(&mut record);
        self.set_record(probe, record.to_string())
    }

    /// Removes everything about a probe.
    pub fn forget(&self, probe: &str) -> Result<()> {
        ensure!(self.rows(probe)? > 0, "there is nothing of {probe}");
        for table in ["windows", "baselines"] {
            let sql = format!(
                "DELETE FROM {table} WHERE series IN (SELECT id FROM series WHERE name = ?1)"
            );
            let _ = self.connection.execute(&sql, [probe])?;
        }
        for table in NAMED.iter().chain(&["series"]) {
            let _ = self
                .connection
                .execute(&format!("DELETE FROM {table} WHERE name = ?1"), [probe])?;
        }
        Ok(())
    }

    /// Returns the number of rows about a probe in all tables.
    pub fn rows(&self, probe: &str) -> Result<u64> {
        let named = NAMED.iter().chain(&["series"]);
        let mut counts: Vec<String> = named
            .map(|table| format!("(SELECT count(*) FROM {table} WHERE name = ?1)"))
            .collect();
        for table in ["windows", "baselines"] {
            let of = format!("{table} JOIN series ON {table}.series = series.id WHERE name = ?1");
            counts.push(format!("(SELECT count(*) FROM {of})"));
        }
        let sql = format!("SELECT {}", counts.join(" + "));
        Ok(self.connection.query_row(&sql, [probe], |row| row.get(0))?)
    }

    /// Returns the number of the newest window of a probe that was not set aside, 0 if there is
    /// none.
    pub fn newest(&self, probe: &str) -> Result<u64> {
        let sql = "SELECT coalesce(max(seq), 0) FROM windows JOIN series ON windows.series = series.id \
                   WHERE name = ?1 AND form <> 3";
        Ok(self.connection.query_row(sql, [probe], |row| row.get(0))?)
    }

    /// Returns the numbers of the windows of a probe that were set aside.
    pub fn damaged(&self, probe: &str) -> Result<Vec<u64>> {
        let sql = "SELECT seq FROM windows JOIN series ON windows.series = series.id \
                   WHERE name = ?1 AND form = 3 ORDER BY seq";
        let mut statement = self.connection.prepare(sql)?;
        let found = statement.query_map([probe], |row| row.get(0))?;
        Ok(found.collect::<twinprobe_store::Result<_>>()?)
    }

    /// Returns the id of a window of a probe.
    pub fn id(&self, probe: &str, seq: u64) -> Result<i64> {
        let sql = "SELECT windows.id FROM windows JOIN series ON windows.series = series.id \
                   WHERE name = ?1 AND seq = ?2";
        let id = self
            .connection
            .query_row(sql, params![probe, seq], |row| row.get(0));
        id.with_context(|| format!("window {seq} of {probe}"))
    }

    /// Returns the file of a window's body; `None` if the body is in the store.
    pub fn body_file(&self, probe: &str, seq: u64) -> Result<Option<PathBuf>> {
        let id = self.id(probe, seq)?;
        let sql = "SELECT body IS NULL FROM windows WHERE id = ?1";
        let is_file: bool = self.connection.query_row(sql, [id], |row| row.get(0))?;
        Ok(is_file.then(|| self.state.join("bodies").join(id.to_string())))
    }

    /// Returns the body of a window.
    pub fn body(&self, probe: &str, seq: u64) -> Result<Vec<u8>> {
        if let Some(path) = self.body_file(probe, seq)? {
            return read(&path);
        }
        let id = self.id(probe, seq)?;
        Ok(self
            .connection
            .query_row("SELECT body FROM windows WHERE id = ?1", [id], |row| {
                row.get(0)
            })?)
    }

    /// Replaces the body of a window, which stays a file or in the store.
    pub fn set_body(&self, probe: &str, seq: u64, body: &[u8]) -> Result<()> {
        if let Some(path) = self.body_file(probe, seq)? {
            // The file is overwritten, so that it stays the same file.
            return Ok(fs::write(path, body)?);
        }
        let id = self.id(probe, seq)?;
        let changed = self.connection.execute(
            "UPDATE windows SET body = ?2 WHERE id = ?1",
            params![id, body],
        )?;
        ensure!(changed == 1, "{changed} windows");
        Ok(())
    }

    /// Changes bits of one byte of a window's body.
    pub fn flip_body(&self, probe: &str, seq: u64, at: usize, mask: u8) -> Result<()> {
        let mut body = self.body(probe, seq)?;
        body[at] ^= mask;
        self.set_body(probe, seq, &body)
    }

    /// Returns the state of a probe's windows.
    pub fn windows_state(&self, probe: &str) -> Result<Vec<u8>> {
        Ok(self.connection.query_row(
            "SELECT state FROM series WHERE name = ?1",
            [probe],
            |row| row.get(0),
        )?)
    }

    /// Replaces the state of a probe's windows.
    pub fn set_windows_state(&self, probe: &str, state: &[u8]) -> Result<()> {
        self.change("UPDATE series SET state = ?2 WHERE name = ?1", probe, state)
    }

    fn change(&self, sql: &str, probe: &str, content: &[u8]) -> Result<()> {
        let changed = self.connection.execute(sql, params![probe, content])?;
        ensure!(changed > 0, "there is nothing of {probe} to be changed");
        Ok(())
    }
}

/// The file of the store.
pub fn file(directories: &Directories) -> PathBuf {
    directories.state().join(FILE)
}

/// Returns the verdict of `twinprobe doctor` on the store, with findings.
pub fn examined(directories: &Directories) -> Result<(String, String)> {
    let mut command = Command::new(binary()?);
    let output = command
        .args(["doctor", "-o", "json", "--state-dir"])
        .arg(directories.state())
        .output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let checks: Value = serde_json::from_slice(&output.stdout).with_context(said)?;
    let check = checks
        .as_array()
        .into_iter()
        .flatten()
        .find(|check| check["name"] == "store");
    let check = check.with_context(|| format!("no check of the store in {checks}"))?;
    let field = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
    Ok((field("verdict"), field("found")))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}
