//! The file of `--audit-log`, with the lines of all requests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use crate::audit::line::Line;
use crate::audit::out::{AuditFile, LineRoom};
use crate::audit::repeats::{RepeatKind, RepeatedRequests};

/// The file of `--audit-log`.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    /// True if the daemon must refuse changes without a record.
    is_required: bool,
    state: Mutex<AuditState>,
}

#[derive(Debug)]
struct AuditState {
    out: AuditFile,
    /// The reason why the last line could not be written as a whole.
    failure: Option<io::ErrorKind>,
    /// The number of lines that were left out since a line was last written.
    left_out: u64,
    repeats: RepeatedRequests,
}

impl AuditLog {
    pub fn open(path: &Path, is_required: bool) -> io::Result<Arc<Self>> {
        let state = AuditState {
            out: AuditFile::open(path)?,
            failure: None,
            left_out: 0,
            repeats: RepeatedRequests::default(),
        };
        Ok(Arc::new(Self {
            path: path.to_owned(),
            is_required,
            state: Mutex::new(state),
        }))
    }

    /// Opens the file again, because somebody may have renamed it. After an error the log continues
    /// in the present file.
    pub fn reopen(&self) -> io::Result<()> {
        self.end_interval();
        let out = AuditFile::open(&self.path)?;
        self.state.lock().out = out;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn is_required(&self) -> bool {
        self.is_required
    }

    /// Writes a line about one request.
    pub fn write(&self, line: &str, room: LineRoom) -> io::Result<()> {
        self.state.lock().write(line, room, &self.path)
    }

    /// Writes the line of the first request of its kind, and counts the others until the end of the
    /// interval.
    pub fn share(self: &Arc<Self>, kind: RepeatKind, line: Line) {
        let mut state = self.state.lock();
        let has_begun = match state.repeats.left() {
            Some(left) if left.is_zero() => {
                state.end_interval(&self.path);
                false
            }
            left => left.is_some(),
        };
        if let Some(line) = state.repeats.count(kind, line) {
            let _ = state.write(&line.render(), LineRoom::Rest, &self.path);
        }
        // The counts are written when the interval ends, even without another request.
        let left = state.repeats.left().filter(|_| !has_begun);
        if let (Some(left), Ok(runtime)) = (left, tokio::runtime::Handle::try_current()) {
            let log = Arc::downgrade(self);
            runtime.spawn(async move {
                tokio::time::sleep(left).await;
                if let Some(log) = log.upgrade() {
                    let mut state = log.state.lock();
                    if state.repeats.left().is_some_and(|left| left.is_zero()) {
                        state.end_interval(&log.path);
                    }
                }
            });
        }
    }

    /// Writes the counts so far.
    pub fn end_interval(&self) {
        self.state.lock().end_interval(&self.path);
    }
}

impl AuditState {
    fn end_interval(&mut self, path: &Path) {
        for line in self.repeats.end() {
            let _ = self.write(&line.render(), LineRoom::Rest, path);
        }
    }

    fn write(&mut self, line: &str, room: LineRoom, path: &Path) -> io::Result<()> {
        if self.left_out > 0 {
            let time = jiff::Timestamp::now().to_string();
            let note =
                json!({ "time": time, "what": "lines were left out", "left_out": self.left_out });
            if self.out.write(&note.to_string(), room).is_ok() {
                self.left_out = 0;
            }
        }
        let written = self.out.write(line, room);
        let failure = written.as_ref().err().map(io::Error::kind);
        if let Some(kind) = failure {
            self.left_out += 1;
            if self.failure.is_none() {
                tracing::error!(path = %path.display(), %kind, "requests can't be recorded");
            }
        }
        self.failure = failure;
        written
    }
}
