//! The log of a daemon: its standard error, collected while it runs.

use std::io::{BufRead, BufReader};
use std::process::ChildStderr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: Mutex<LogLines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogLines {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    pub(crate) fn collect(&self, stderr: ChildStderr) {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            self.append(|log| log.lines.push(String::from_utf8_lossy(&line).into_owned()));
        }
        self.append(|log| log.ended = true);
    }

    fn append(&self, change: impl FnOnce(&mut LogLines)) {
        change(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    pub(crate) fn text(&self) -> String {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines
            .join("\n")
    }

    /// Returns the last lines.
    pub(crate) fn tail(&self, count: usize) -> String {
        let log = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        log.lines[log.lines.len().saturating_sub(count)..].join("\n")
    }

    /// Waits for `text` in the log. Returns false if it is not there at the limit or when the
    /// daemon ends.
    pub(crate) fn wait_for(&self, text: &str, limit: Duration) -> bool {
        let has = |log: &LogLines| log.lines.iter().any(|line| line.contains(text));
        let guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self
            .changed
            .wait_timeout_while(guard, limit, |log| !has(log) && !log.ended);
        has(&waiting.unwrap_or_else(PoisonError::into_inner).0)
    }
}
