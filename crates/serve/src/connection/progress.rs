//! The phase of a connection and its deadline: this ends half-open connections, idle ones and those
//! whose client does not take its answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::counts::Cut;
use crate::connection::limits::ConnectionLimits;

/// The rate, in bytes per second, at which a client must take an answer in the long run.
const SLOWEST: u32 = 2 << 10;

/// The progress of one connection.
#[derive(Debug)]
pub struct ConnectionProgress {
    pub limits: ConnectionLimits,
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
struct ProgressState {
    phase: Phase,
    /// The beginning of the phase.
    since: Instant,
    /// How long the client may pause from now on. Each byte that it takes extends this time.
    patience: Duration,
    /// The time since which the client has read nothing, while bytes wait for it.
    blocked: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No bytes have arrived yet.
    Fresh,
    /// All requests are answered.
    Idle,
    /// The head of a request has begun.
    Head,
    /// A request is being read or answered.
    Active,
    /// A request has its answer; the unread rest of its body is outstanding.
    Rest,
}

impl ConnectionProgress {
    pub fn new(limits: ConnectionLimits) -> Self {
        let state = ProgressState {
            phase: Phase::Fresh,
            since: Instant::now(),
            patience: limits.write_timeout,
            blocked: None,
        };
        Self {
            limits,
            state: Mutex::new(state),
        }
    }

    /// Notes that the client has sent something.
    pub fn received(&self) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Idle => state.enter(Phase::Head),
            // The time for the first head begins with the connection.
            Phase::Fresh => state.phase = Phase::Head,
            Phase::Head | Phase::Active | Phase::Rest => {}
        }
    }

    /// Notes that the head of a request is complete.
    pub fn begin(&self) {
        self.state.lock().enter(Phase::Active);
    }

    /// Notes that the answer waits for the rest of the request's body.
    pub fn rest(&self) {
        self.state.lock().enter(Phase::Rest);
    }

    /// Notes that a request is answered.
    pub fn end(&self) {
        self.state.lock().enter(Phase::Idle);
    }

    /// Notes that the client has no room for more of its answer.
    pub fn blocked(&self) {
        self.state.lock().blocked.get_or_insert_with(Instant::now);
    }

    /// Notes that the client has taken this number of bytes.
    pub fn taken(&self, bytes: usize) {
        let mut state = self.state.lock();
        let Some(since) = state.blocked.take() else {
            return;
        };
        let earned = Duration::from_secs(bytes as u64) / SLOWEST;
        let left = state.patience.saturating_sub(since.elapsed());
        state.patience = (left + earned).min(self.limits.write_timeout);
    }

    /// Returns the deadline of the connection, and the reason of an end at the deadline.
    pub fn deadline(&self) -> Option<(Instant, Cut)> {
        let state = self.state.lock();
        if let Some(since) = state.blocked {
            return Some((since + state.patience, Cut::Write));
        }
        match state.phase {
            Phase::Fresh | Phase::Head => {
                Some((state.since + self.limits.header_timeout, Cut::Head))
            }
            Phase::Idle => Some((state.since + self.limits.idle_timeout, Cut::Idle)),
            // The server bounds the time for the rest of a body.
            Phase::Active | Phase::Rest => None,
        }
    }

    /// Returns the phase and its beginning.
    pub fn phase(&self) -> (Phase, Instant) {
        let state = self.state.lock();
        (state.phase, state.since)
    }
}

impl ProgressState {
    fn enter(&mut self, phase: Phase) {
        (self.phase, self.since) = (phase, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        max_connections: 4,
        max_connections_per_client: 3,
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(60),
    };

    fn left(progress: &ConnectionProgress) -> Option<(u64, Cut)> {
        progress
            .deadline()
            .map(|(at, reason)| ((at - Instant::now()).as_secs(), reason))
    }

    #[tokio::test(start_paused = true)]
    async fn heads_and_idle_times_are_bounded_and_requests_are_not() {
        let progress = ConnectionProgress::new(LIMITS);
        tokio::time::advance(Duration::from_secs(3)).await;
        progress.received();
        assert_eq!(
            left(&progress),
            Some((7, Cut::Head)),
            "bytes that trickle in win no time"
        );
        progress.begin();
        assert_eq!(left(&progress), None);
        progress.end();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(left(&progress), Some((57, Cut::Idle)));
        progress.received();
        tokio::time::advance(Duration::from_secs(1)).await;
        progress.received();
        assert_eq!(left(&progress), Some((9, Cut::Head)));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_take_little_run_out_of_time() {
        let progress = ConnectionProgress::new(LIMITS);
        progress.begin();
        progress.blocked();
        assert_eq!(left(&progress), Some((30, Cut::Write)));
        // A client that takes enough can continue forever.
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(10)).await;
            progress.taken(10 * SLOWEST as usize);
            assert_eq!(left(&progress), None);
            progress.blocked();
        }
        assert_eq!(left(&progress), Some((30, Cut::Write)));
        // A client that takes only a byte now and then does not extend its time.
        for second in 1..30 {
            tokio::time::advance(Duration::from_secs(1)).await;
            progress.taken(1);
            progress.blocked();
            assert_eq!(left(&progress).map(|(left, _)| left), Some(30 - second));
        }
        // Time in which no bytes wait does not count.
        progress.taken(1);
        tokio::time::advance(Duration::from_secs(100)).await;
        progress.blocked();
        assert_eq!(left(&progress), Some((1, Cut::Write)));
    }
}
