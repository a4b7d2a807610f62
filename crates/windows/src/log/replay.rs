//! The use of the log at a start. The files are not synced when they are changed: after a loss of power the file system
//! may have forgotten any of these changes, and each that the log has is made again. If the machine was not booted
//! meanwhile, the files are as they were, and need only be synced.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::file::directory::{Directory, Form};
use crate::log::log::sync_all;
use crate::log::record::{Change, Record};
use crate::log::segment::{self, SEGMENTS};
use crate::state::State;

/// The last changes of one probe's files.
#[derive(Debug, Default)]
struct Last<'a> {
    /// True if all files were removed before the changes below.
    all_removed: bool,
    windows: BTreeMap<u64, LastOfWindow<'a>>,
    state: Option<&'a [u8]>,
}

/// The last changes of the file of a window.
#[derive(Debug, Default)]
struct LastOfWindow<'a> {
    content: Option<&'a [u8]>,
    form: Option<Form>,
    is_removed: bool,
}

/// Makes the files below `root` as the log says, unless it is of this boot, syncs them, and forgets the log. Returns the
/// generation of the last segment; 0 if there was none.
pub fn replay(root: &Path, boot: &str) -> io::Result<u64> {
    let mut segments = Vec::new();
    for place in 0..SEGMENTS {
        segments.extend(segment::read(root, place)?.map(|(head, bytes)| (head, bytes, place)));
    }
    segments.sort_by_key(|(head, ..)| head.generation);
    let Some((newest, ..)) = segments.last() else {
        // A file may have its name although no record of it was written.
        if root.exists() {
            sync_all(root)?;
        }
        return Ok(0);
    };
    if newest.boot != boot {
        let mut last: BTreeMap<&str, Last<'_>> = BTreeMap::new();
        for (head, bytes, _) in &segments {
            segment::records(head, bytes).into_iter().for_each(|record| note(&mut last, record));
        }
        for (probe, last) in &last {
            let directory = Directory::new(root.join(probe));
            if last.is_older(&directory)? {
                tracing::warn!(
                    probe,
                    "the log of windows is older than the files and not used for the probe"
                );
                continue;
            }
            let changes = last.apply(&directory)?;
            if changes > 0 {
                tracing::warn!(probe, changes, "the log has restored files of windows");
            }
        }
    }
    sync_all(root)?;
    // The older segment goes first: it says nothing without its successor.
    for (_, _, place) in &segments {
        segment::forget(root, *place)?;
    }
    Ok(newest.generation)
}

fn note<'a>(last: &mut BTreeMap<&'a str, Last<'a>>, record: Record<'a>) {
    let probe = last.entry(record.probe).or_default();
    match record.change {
        Change::Written { seq, content } => {
            probe.windows.insert(seq, LastOfWindow { content: Some(content), ..LastOfWindow::default() });
        }
        Change::Renamed { seq, form } => probe.windows.entry(seq).or_default().form = Some(form),
        Change::Removed { seq } => probe.windows.entry(seq).or_default().is_removed = true,
        Change::State { content } => probe.state = Some(content),
        Change::AllRemoved => *probe = Last { all_removed: true, ..Last::default() },
    }
}

impl Last<'_> {
    /// Tells whether there is a window that the log does not know: an earlier version, which has no log, has written it.
    fn is_older(&self, directory: &Directory) -> io::Result<bool> {
        let state = self.state.and_then(|state| State::decode(state).ok());
        let known = self.windows.keys().next_back().copied().max(state.map(|state| state.last));
        let found = directory.scan()?.into_iter().filter(|(_, form)| Form::READABLE.contains(form));
        Ok(!self.all_removed && found.map(|(seq, _)| seq).max() > known)
    }

    /// Makes the changes. Returns how many had to be made.
    fn apply(&self, directory: &Directory) -> io::Result<usize> {
        let mut changes = 0;
        if self.all_removed && directory.path().exists() {
            directory.remove_all()?;
            changes += 1;
        }
        for (&seq, last) in &self.windows {
            changes += usize::from(last.apply(directory, seq)?);
        }
        if let Some(state) = self.state
            && directory.read_state()?.as_deref() != Some(state)
        {
            directory.make()?;
            replace(&directory.state(), state)?;
            changes += 1;
        }
        Ok(changes)
    }
}

impl LastOfWindow<'_> {
    /// Makes the changes of one window. Returns false if there was nothing to change.
    fn apply(&self, directory: &Directory, seq: u64) -> io::Result<bool> {
        let wanted = self.form.unwrap_or(Form::Window);
        let path = directory.file(seq, wanted);
        let mut changed = false;
        let mut is_there = path.try_exists()?;
        for form in Form::READABLE {
            let other = directory.file(seq, form);
            if (form == wanted && !self.is_removed) || !other.try_exists()? {
                continue;
            }
            if self.is_removed || is_there {
                fs::remove_file(&other)?;
            } else {
                fs::rename(&other, &path)?;
                is_there = true;
            }
            changed = true;
        }
        if let Some(content) = self.content.filter(|_| !self.is_removed && wanted != Form::Damaged)
            && (!is_there || fs::read(&path)? != content)
        {
            directory.make()?;
            replace(&path, content)?;
            changed = true;
        }
        Ok(changed)
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    file.write_all(content)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
