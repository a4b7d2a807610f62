//! Requests that share lines: the first of each kind has a line at once, the others are counted for
//! a while and share one line.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::audit::line::Line;

/// The time over which requests of one kind are counted.
pub const INTERVAL: Duration = Duration::from_secs(60);
/// The most kinds that are counted separately. All others count as one kind, so that many clients
/// cause as few lines as a few clients.
const KINDS: usize = 64;

/// The facts that decide which requests share a line: the client, its address, and the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepeatKind {
    pub who: Option<String>,
    /// The address without its port, or the user.
    pub from: String,
    pub reason: Option<&'static str>,
    pub outcome: Option<u16>,
}

/// The requests of the present interval.
#[derive(Debug, Default)]
pub struct RepeatedRequests {
    /// The end of the interval; `None` before its beginning.
    until: Option<Instant>,
    /// The last repeated request of each kind, and the number of repeats. `None` stands for all
    /// kinds beyond [`KINDS`].
    kinds: HashMap<Option<RepeatKind>, (Option<Line>, u64)>,
}

impl RepeatedRequests {
    /// Counts a request. Returns its line if it is the first of its kind.
    pub fn count(&mut self, kind: RepeatKind, line: Line) -> Option<Line> {
        self.until.get_or_insert_with(|| Instant::now() + INTERVAL);
        let known = self.kinds.len() < KINDS || self.kinds.contains_key(&Some(kind.clone()));
        let kind = known.then_some(kind);
        match self.kinds.get_mut(&kind) {
            None => {
                self.kinds.insert(kind, (None, 0));
                Some(line)
            }
            Some((last, count)) => {
                (*last, *count) = (Some(line), *count + 1);
                None
            }
        }
    }

    /// Tells whether the interval has begun, and how long it still is.
    pub fn left(&self) -> Option<Duration> {
        self.until
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Ends the interval. Returns a line for each kind with more than one request: the line of the
    /// last request, with the number of requests.
    pub fn end(&mut self) -> Vec<Line> {
        self.until = None;
        let counted = self.kinds.drain();
        let lines =
            counted.filter_map(|(kind, (line, count))| Some(line?.counted(count, kind.is_none())));
        lines.collect()
    }
}
