//! What a start finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Arc, Weak};

use super::directory::{Directory, Form};
use super::format::Unusable;
use super::index::Index;
use super::state::State;
use super::stored::{self, StoredWindow};
use super::{DAMAGED_FILES, Windows};

/// Goes on with what a crash has left half done.
pub(super) fn restore(directory: &Directory, windows: &Weak<Windows>) -> Index {
    directory.clean();
    let files = directory.scan().unwrap_or_else(|error| {
        tracing::error!(path = %directory.path().display(), %error, "a directory of windows can't be read");
        Vec::new()
    });
    let written = read_state(directory);
    let mut state = written.clone().unwrap_or_default();
    let numbers = |form| files.iter().filter(move |file| file.1 == form).map(|file| file.0);
    if state.first == 0 {
        state.first = files.first().map_or(0, |file| file.0);
    }
    state.last = state.last.max(files.last().map_or(0, |file| file.0));
    state.acknowledged = numbers(Form::Acked).fold(state.acknowledged, u64::max);
    // The further a window got, the later it was.
    let current: BTreeMap<u64, Form> =
        files.iter().copied().filter(|file| Form::READABLE.contains(&file.1)).collect();
    let mut damaged: BTreeSet<u64> = numbers(Form::Damaged).collect();
    let mut found = Vec::new();
    for (&seq, &form) in &current {
        match examine(directory, seq, form, windows) {
            Ok((window, reports)) => {
                if seq > state.reported_through {
                    (state.reported, state.reported_through) = (state.reported + reports, seq);
                }
                found.push((Arc::new(window), form));
            }
            Err(reason) => {
                let path = directory.file(seq, form);
                tracing::error!(path = %path.display(), %reason, "the file of a window is damaged and set aside");
                directory.rename(seq, form, Form::Damaged);
                damaged.insert(seq);
            }
        }
    }
    // A window whose file was damaged may have been stored again.
    damaged.retain(|seq| !found.iter().any(|(window, _): &(Arc<StoredWindow>, _)| window.seq() == *seq));
    for seq in damaged.into_iter().filter(|&seq| seq > state.acknowledged) {
        if !state.lost.contains(seq) {
            state.lost.add(seq, 0);
            state.damaged += 1;
        }
    }
    let marked: Vec<u64> = numbers(Form::Lost).collect();
    marked.iter().for_each(|&seq| state.lost.add(seq, 0));
    let unsaved = written.is_none_or(|written| written != state) && state.last > 0;
    let mut index = Index::new(state, unsaved, marked);
    keep(directory, &mut index, found, &files);
    index
}

/// Finishes what the state or a name says of the files.
fn keep(
    directory: &Directory,
    index: &mut Index,
    found: Vec<(Arc<StoredWindow>, Form)>,
    files: &[(u64, Form)],
) {
    // Before the files that say the same go.
    let saved = !index.unsaved || save(directory, index);
    let gone = |window: &StoredWindow, state: &State| state.lost.contains(window.seq());
    let newest =
        found.iter().rfind(|(window, _)| !gone(window, &index.state)).map(|(window, _)| window.seq());
    for (window, form) in found {
        let seq = window.seq();
        let stale = Form::READABLE.into_iter().filter(|&other| other < form && files.contains(&(seq, other)));
        stale.for_each(|form| directory.remove(seq, form));
        if gone(&window, &index.state) {
            directory.remove(seq, form);
        } else if seq > index.state.acknowledged {
            index.keep(window, form);
        } else if Some(seq) != newest {
            directory.remove(seq, form);
        } else {
            if form != Form::Acked {
                directory.rename(seq, form, Form::Acked);
            }
            index.keep(window, Form::Acked);
        }
    }
    if saved {
        index.marked.drain(..).for_each(|seq| directory.remove(seq, Form::Lost));
        forget_damaged(directory);
    }
}

fn save(directory: &Directory, index: &mut Index) -> bool {
    let written = index.state.encode().map_err(Into::into).and_then(|bytes| directory.write_state(&bytes));
    if let Err(error) = &written {
        tracing::error!(path = %directory.path().display(), %error, "what became of windows could not be written down");
    }
    index.unsaved = written.is_err();
    !index.unsaved
}

fn examine(
    directory: &Directory,
    seq: u64,
    form: Form,
    windows: &Weak<Windows>,
) -> Result<(StoredWindow, u64), Unusable> {
    let file = File::open(directory.file(seq, form))?;
    let bytes = file.metadata()?.len();
    let reader = stored::open(file, seq)?;
    let head = reader.head();
    Ok((StoredWindow::new(head, bytes, Weak::clone(windows)), head.window.lost_windows))
}

/// `None` if there is none, or none that can be read.
fn read_state(directory: &Directory) -> Option<State> {
    let reason = match directory.read_state() {
        Ok(None) => return None,
        Ok(Some(bytes)) => match State::decode(&bytes) {
            Some(state) => return Some(state),
            None => "its content is not what was written".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let path = directory.path().display();
    tracing::error!(%path, reason, "what became of windows can't be read; what can be is taken from their files");
    directory.set_state_aside();
    None
}

/// Keeps the newest of the files that were set aside.
pub(super) fn forget_damaged(directory: &Directory) {
    let files = directory.scan().unwrap_or_default();
    let damaged: Vec<u64> = files.iter().filter(|file| file.1 == Form::Damaged).map(|file| file.0).collect();
    for &seq in &damaged[..damaged.len().saturating_sub(DAMAGED_FILES)] {
        directory.remove(seq, Form::Damaged);
    }
}
