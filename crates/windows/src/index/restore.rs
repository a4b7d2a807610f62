//! The index of a probe's windows, as a start of the daemon builds it from the store.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use twinprobe_store::Durable;

use crate::body::stored::{BodySource, StoredWindow};
use crate::index::index::WindowIndex;
use crate::index::state::SeriesState;
use crate::rows::{Form, WindowSeries};
use crate::windows::Windows;

/// Builds the index. `files` are the bodies that are files. Returns also the damaged windows that
/// are not set aside yet.
pub fn restore(
    series: WindowSeries,
    source: &Weak<dyn BodySource>,
    files: &BTreeSet<i64>,
) -> (WindowIndex, Vec<Arc<StoredWindow>>) {
    let WindowSeries {
        name,
        state,
        windows,
        baselines,
        ..
    } = series;
    let mut state = SeriesState::decode(&state).unwrap_or_else(|error| {
        tracing::error!(
            probe = name,
            ?error,
            "the state of windows is damaged; it is restored from the windows"
        );
        SeriesState::default()
    });
    let mut damaged = Vec::new();
    let mut found = Vec::new();
    for (window, form) in windows {
        let has_body = !window.is_file || files.contains(&window.id);
        let window = window.of(Weak::clone(source));
        match form.filter(|form| has_body || *form == Form::Damaged) {
            Some(form) => found.push((window, form)),
            None => {
                let reason = if has_body {
                    "its row differs from the one that was written"
                } else {
                    "its body is not there"
                };
                tracing::error!(
                    probe = name,
                    seq = window.seq(),
                    reason,
                    "a window is damaged and set aside"
                );
                damaged.push(window);
            }
        }
    }
    for (window, form) in found.iter().filter(|(_, form)| *form != Form::Damaged) {
        let seq = window.seq();
        state.first = if state.first == 0 { seq } else { state.first };
        state.last = state.last.max(seq);
        if *form == Form::Acknowledged {
            state.acknowledged = state.acknowledged.max(seq);
        }
        if seq > state.reported_through {
            (state.reported, state.reported_through) = (state.reported + window.reports, seq);
        }
    }
    // Earlier versions also reported windows without a named collector.
    state.reported = state.reported.min(state.lost.total());
    let mut index = WindowIndex::default();
    (index.state, index.baselines) = (state, baselines);
    found
        .into_iter()
        .for_each(|(window, form)| index.keep(window, form));
    for window in &damaged {
        let seq = window.seq();
        let is_next = seq > index.state.acknowledged && seq <= index.state.last + 1;
        // [`mend`] sets a damaged window aside if it may be a retained window. This code only
        // counts all other damaged windows.
        let is_retained = is_next && index.get(seq).is_err();
        index.state.last = if is_retained {
            index.state.last.max(seq)
        } else {
            index.state.last
        };
        index.keep(
            Arc::clone(window),
            if is_retained {
                Form::Closed
            } else {
                Form::Damaged
            },
        );
    }
    index.lose_vanished(&name);
    (index, damaged)
}

/// Sets damaged windows aside that a start has found; in memory only, if the store was opened to be
/// read.
pub fn mend(windows: &Windows, damaged: &[Arc<StoredWindow>]) {
    // Unknown windows come first: the oldest of too many are removed.
    for plan in [WindowIndex::count_damaged, WindowIndex::damage] {
        for window in damaged {
            let turn = windows.turn();
            let change = plan(&windows.index.lock(), window.id);
            match change {
                Some(change) if windows.database.is_read_only() => {
                    windows.index.lock().apply(change);
                }
                // A failure was logged, and the next start finds the damaged window again.
                Some(change) => drop(windows.change(turn, change, Durable::Soon)),
                None => {}
            }
        }
    }
}
