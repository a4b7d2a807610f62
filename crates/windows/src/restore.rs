//! The restoration of the index from the files that a start finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::{Arc, Weak};

use crate::file::directory::{Directory, Form};
use crate::file::format::Unusable;
use crate::file::stored::{self, StoredWindow, WindowFiles};
use crate::index::{Index, Unreadable};
use crate::log::log::Ahead;
use crate::log::record::Change;
use crate::retention::DAMAGED_FILES;
use crate::state::{State, Undecodable};

/// Builds the index from the files, and finishes the changes that a crash has interrupted.
pub fn restore(directory: &Directory, windows: &Weak<dyn WindowFiles>) -> Index {
    let mut blocked = None;
    let found = directory.scan().and_then(|files| Ok((files, directory.baselines()?)));
    let (files, baselines) = found.unwrap_or_else(|error| {
        blocked = Some(error.to_string());
        Default::default()
    });
    let written = read_state(directory).unwrap_or_else(|reason| {
        blocked = Some(format!("state.json: {reason}"));
        None
    });
    let blocked = blocked.map(|reason| format!("{}: {reason}", directory.path().display()));
    match &blocked {
        Some(reason) => {
            tracing::error!(reason, "the state of windows can't be read; windows stay unchanged");
        }
        None => directory.clean(),
    }
    let mut state = written.clone().unwrap_or_default();
    let numbers = |form| files.iter().filter(move |file| file.1 == form).map(|file| file.0);
    if state.first == 0 {
        state.first = files.first().map_or(0, |file| file.0);
    }
    state.last = state.last.max(files.last().map_or(0, |file| file.0));
    state.acknowledged = numbers(Form::Acked).fold(state.acknowledged, u64::max);
    // The last form in the order of renaming is the valid one if a window has several files.
    let current: BTreeMap<u64, Form> =
        files.iter().copied().filter(|file| Form::READABLE.contains(&file.1)).collect();
    let mut damaged: BTreeSet<u64> = numbers(Form::Damaged).collect();
    let mut found = Vec::new();
    let mut unreadable = BTreeMap::new();
    for (&seq, &form) in &current {
        match examine(directory, seq, form, windows) {
            Ok((window, reports)) => {
                if seq > state.reported_through {
                    (state.reported, state.reported_through) = (state.reported + reports, seq);
                }
                found.push((Arc::new(window), form));
            }
            // A damaged file stays as it is in a blocked directory, too.
            Err(reason) if blocked.is_some() || !matches!(reason, Unusable::Damaged(_)) => {
                let path = directory.file(seq, form);
                tracing::error!(path = %path.display(), %reason, "the file of a window can't be read and stays as it is");
                unreadable.insert(seq, Unreadable { form, reason: reason.to_string() });
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
    let marked: Vec<u64> = numbers(Form::Lost).collect();
    let was_lost = |seq: &u64| *seq > state.acknowledged || marked.contains(seq);
    for seq in damaged.into_iter().filter(was_lost).collect::<Vec<_>>() {
        if !state.lost.contains(seq) {
            state.lost.add(seq, 0);
            state.damaged += 1;
        }
    }
    marked.iter().for_each(|&seq| state.lost.add(seq, 0));
    let unsaved = written.is_none_or(|written| written != state) && state.last > 0;
    let mut index = Index::new(state, unsaved, marked);
    (index.blocked, index.unreadable) = (blocked, unreadable);
    if index.blocked.is_some() {
        // A blocked directory allows windows to be read, and nothing else.
        found.into_iter().for_each(|(window, form)| index.keep(window, form));
        index.weigh(directory.sizes());
        return index;
    }
    keep(directory, &mut index, found, &files);
    let newest = index.newest_file();
    let needless: BTreeSet<(u64, u64)>;
    (index.baselines, needless) = baselines.into_iter().partition(|&(seq, _)| seq > newest);
    needless.into_iter().for_each(|(seq, serial)| directory.remove_baseline(seq, serial));
    index.weigh(directory.sizes());
    index
}

/// Adds the windows to the index, and finishes the changes of files that the state or a file's name requires.
fn keep(
    directory: &Directory,
    index: &mut Index,
    found: Vec<(Arc<StoredWindow>, Form)>,
    files: &[(u64, Form)],
) {
    // The state is saved before the files that say the same are removed.
    let saved = !index.unsaved || save(directory, &index.state).is_ok();
    index.unsaved = !saved;
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

/// Writes the state to disk. A failure is logged.
pub fn save(directory: &Directory, state: &State) -> Result<(), io::ErrorKind> {
    begin_save(directory, state, false).and_then(|saving| end_save(directory, saving))
}

/// A state that is to be written, and its record in the log.
#[derive(Debug)]
pub struct Saving {
    bytes: Vec<u8>,
    /// True if the log has the state already.
    is_logged: bool,
    ahead: Option<Ahead>,
}

/// Notes the state in the log, unless `is_logged` says that the log has it. A failure is logged.
pub fn begin_save(directory: &Directory, state: &State, is_logged: bool) -> Result<Saving, io::ErrorKind> {
    let bytes = state.encode().map_err(|error| not_saved(directory, &error.into()))?;
    let ahead = if is_logged { None } else { directory.note_ahead(&[Change::State { content: &bytes }]) };
    Ok(Saving { bytes, is_logged, ahead })
}

/// Writes the state to disk. A failure is logged.
pub fn end_save(directory: &Directory, saving: Saving) -> Result<(), io::ErrorKind> {
    let Saving { bytes, is_logged, ahead } = saving;
    let is_logged = is_logged || ahead.as_ref().is_some_and(|ahead| ahead.wait().is_ok());
    directory.write_state(&bytes, is_logged).map_err(|error| not_saved(directory, &error))
}

fn not_saved(directory: &Directory, error: &io::Error) -> io::ErrorKind {
    let path = directory.path().display();
    tracing::error!(%path, %error, "the state of windows could not be written");
    error.kind()
}

/// Examines the file of a window. Returns the window and the number of lost windows that it reports.
pub fn examine(
    directory: &Directory,
    seq: u64,
    form: Form,
    windows: &Weak<dyn WindowFiles>,
) -> Result<(StoredWindow, u64), Unusable> {
    let file = File::open(directory.file(seq, form))?;
    let bytes = file.metadata()?.len();
    let reader = stored::open(file, seq)?;
    let window = StoredWindow::new(&reader.head, bytes, Weak::clone(windows));
    Ok((window, reader.head.window.lost_windows))
}

/// Returns `None` if there is no state, or a damaged one. The error says why the state has to be left alone.
fn read_state(directory: &Directory) -> Result<Option<State>, String> {
    let Some(bytes) = directory.read_state().map_err(|error| error.to_string())? else { return Ok(None) };
    match State::decode(&bytes) {
        Ok(state) => Ok(Some(state)),
        Err(Undecodable::Newer(version)) => Err(format!(
            "it has format {version}, which this version of twinprobe does not know; use a later one"
        )),
        Err(Undecodable::Damaged) => {
            let path = directory.path().display();
            let reason = "its content is not what was written";
            tracing::error!(%path, reason, "the state of windows is damaged; window files restore it");
            directory.set_state_aside();
            Ok(None)
        }
    }
}

/// Keeps the newest of the files that were set aside.
pub fn forget_damaged(directory: &Directory) {
    let files = directory.scan().unwrap_or_default();
    let damaged: Vec<u64> = files.iter().filter(|file| file.1 == Form::Damaged).map(|file| file.0).collect();
    for &seq in &damaged[..damaged.len().saturating_sub(DAMAGED_FILES)] {
        directory.remove(seq, Form::Damaged);
    }
}
