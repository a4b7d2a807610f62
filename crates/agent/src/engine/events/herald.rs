//! The single task that looks at probes and windows, for all clients that follow changes. It
//! renders a change once, and all clients send the same bytes. An additional client causes no
//! additional look and no copy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use hyper::body::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use twinprobe_access::{Principal, Role};
use twinprobe_windows::Closed;

use crate::engine::engine::Engine;
use crate::engine::events::changes::{self, ConsoleReach};
use crate::engine::events::told::{About, ChangeFollower, ChangeTeller};

/// The time between two looks at the states of probes: most fields of a status change without a
/// notification.
const LOOK: Duration = Duration::from_millis(500);
/// The time between two counts of interfaces.
const COUNT: Duration = Duration::from_secs(2);
impl Engine {
    /// Follows the changes for one client. The stream begins with the state of all probes, and ends
    /// when the daemon stops, or when the client has missed changes because it was too slow. `only`
    /// names the one probe of the stream.
    pub fn follow_changes(
        self: &Arc<Self>,
        by: &Principal,
        only: Option<String>,
        reach: ConsoleReach,
    ) -> impl Stream<Item = Bytes> + Send + use<> {
        // Windows that are closed from now on are announced.
        let closed = self.readings.windows.closed.subscribe();
        let mut state = self.streaming.herald.0.lock();
        let is_first = state.is_none();
        let told = state.get_or_insert_with(ChangeTeller::new);
        let audience = usize::from(by.need(Role::Operator).is_ok());
        let mut first = VecDeque::from([changes::hello(&self.node, by, reach)]);
        first.extend(told.look(&self.registry.list(), Some(only.as_deref())));
        first.push_back(changes::listed());
        first.extend(told.counts[audience].clone());
        let (changes, token) = (told.out.subscribe(), Arc::clone(&told.audiences[audience]));
        drop(state);
        if is_first {
            tokio::spawn(tell(Arc::clone(self), closed));
        }
        let follower = ChangeFollower {
            first,
            changes,
            only,
            audience,
            _token: token,
            has_ended: false,
        };
        stream::unfold(follower, async |mut follower| {
            Some((follower.next().await?, follower))
        })
    }
}

/// Sends changes as long as a client follows them.
async fn tell(engine: Arc<Engine>, mut closed: broadcast::Receiver<Arc<Closed>>) {
    let mut disturbed = engine.registry.disturbed.subscribe();
    let mut next_count = Instant::now();
    let mut counting: Option<JoinHandle<()>> = None;
    loop {
        if Instant::now() >= next_count && counting.as_ref().is_none_or(JoinHandle::is_finished) {
            counting = Some(tokio::task::spawn_blocking({
                let engine = Arc::clone(&engine);
                move || count(&engine)
            }));
            next_count = Instant::now() + COUNT;
        }
        let is_stopping = *disturbed.borrow_and_update();
        if !is_stopping
            && !windows(&engine, &mut closed, &mut disturbed, Instant::now() + LOOK).await
        {
            return;
        }
        let mut state = engine.streaming.herald.0.lock();
        match &mut *state {
            Some(told) if !is_stopping && told.out.receiver_count() > 0 => {
                drop(told.look(&engine.registry.list(), None));
            }
            // The streams end with the sender.
            _ => {
                *state = None;
                return;
            }
        }
    }
}

/// Announces windows until the next check of the probes. Returns false if no client listens any
/// more.
async fn windows(
    engine: &Engine,
    closed: &mut broadcast::Receiver<Arc<Closed>>,
    disturbed: &mut watch::Receiver<bool>,
    until: Instant,
) -> bool {
    loop {
        let event = timeout_at(until, async {
            tokio::select! {
                biased;
                closed = closed.recv() => Some(closed),
                _ = disturbed.changed() => None,
            }
        });
        let Ok(Some(news)) = event.await else {
            return true;
        };
        let mut state = engine.streaming.herald.0.lock();
        let Some(told) = &mut *state else {
            return false;
        };
        match news {
            Ok(closed) => {
                let probe = engine.registry.get(&closed.probe).ok();
                told.window(&closed, probe.map(|probe| probe.windows.statistics()));
            }
            Err(error) => {
                let count = if let RecvError::Lagged(count) = error {
                    count
                } else {
                    0
                };
                told.tell(About::All, changes::missed(count));
                *state = None;
                return false;
            }
        }
    }
}

/// Counts interfaces for each audience that has clients.
fn count(engine: &Engine) {
    for audience in [0, 1] {
        let has_audience = || {
            let state = engine.streaming.herald.0.lock();
            state
                .as_ref()
                .is_some_and(|told| Arc::strong_count(&told.audiences[audience]) > 1)
        };
        if !has_audience() {
            continue;
        }
        // This takes no lock: a namespace's path may block the thread, and no task may wait for
        // that.
        let bytes = engine.counts(audience == 1);
        if let Some(told) = &mut *engine.streaming.herald.0.lock() {
            told.counts[audience] = Some(bytes.clone());
            told.tell(About::Counts(audience), bytes);
        }
    }
}
