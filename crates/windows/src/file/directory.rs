//! The files of one probe's windows. The state of a window is in the name of its file: a rename needs no room on a full
//! disk, and after a crash it is done or not done.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use crate::file::spare::{IsUnshared, Spares};
use crate::log::log::Log;
use crate::log::record::Change;
#[cfg(test)]
use crate::windows::tests::faults;

const STATE: &str = "state.json";
const DAMAGED_STATE: &str = "state.damaged";
const BASELINE: &str = "baseline";
/// The beginning of the names of files that are no windows yet, or no more.
pub const TEMPORARY: &str = ".new-";

/// The form of a window's file name; a window passes through the forms in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// No client has taken the window yet.
    Window,
    /// The client that closed the window has received all of it.
    Taken,
    /// The window is acknowledged, and kept because it is the newest.
    Acked,
    /// The file is damaged and set aside.
    Damaged,
    /// The file is empty and says that the window was lost, while there is no room to write `state.json`.
    Lost,
}

impl Form {
    const ALL: [Self; 5] = [Self::Window, Self::Taken, Self::Acked, Self::Damaged, Self::Lost];
    /// The forms of files with a content.
    pub const READABLE: [Self; 3] = [Self::Window, Self::Taken, Self::Acked];

    const fn suffix(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Taken => "taken",
            Self::Acked => "acked",
            Self::Damaged => "damaged",
            Self::Lost => "lost",
        }
    }
}

/// The directory of one probe's windows.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// The log that makes changes durable; `None` if each file is synced by itself.
    pub log: Option<Arc<Log>>,
    /// The files that are written again; `None` if each is created and removed.
    pub spares: Option<Arc<Spares>>,
    /// The steps at which tests let the process die or the disk be full.
    #[cfg(test)]
    pub faults: faults::Faults,
}

/// A kind of change of the file system, for tests that let it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A write, which needs room on the disk.
    Write,
    /// The creation of an empty file or a link, which needs only a name.
    Create,
    Rename,
    Remove,
}

impl Directory {
    /// A directory whose files are synced one by one.
    pub fn new(path: PathBuf) -> Self {
        Self::with_log(path, None)
    }

    /// A directory whose changes `log` makes durable, under the name of the directory.
    pub fn with_log(path: PathBuf, log: Option<Arc<Log>>) -> Self {
        Self {
            path,
            log,
            spares: None,
            #[cfg(test)]
            faults: faults::Faults::default(),
        }
    }

    /// Does the same, and writes files again that nobody else has open, as far as `is_unshared` can tell.
    pub fn reusing(self, is_unshared: Option<IsUnshared>) -> Self {
        let spares = is_unshared.filter(|_| self.log.is_some()).map(|known| Arc::new(Spares::new(known)));
        Self { spares, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a window's file.
    pub fn file(&self, seq: u64, form: Form) -> PathBuf {
        self.path.join(format!("{seq}.{}", form.suffix()))
    }

    /// Lists the files of all windows, by number and form.
    pub fn scan(&self) -> io::Result<Vec<(u64, Form)>> {
        let mut found: Vec<(u64, Form)> = self.names()?.iter().filter_map(|name| parse(name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Removes unfinished files that a crash has left. To be called while nobody writes.
    pub fn clean(&self) {
        let names = self.names().unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with(TEMPORARY)) {
            logged("removing", &self.path.join(name), |path| fs::remove_file(path));
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let Some(entries) = if_there(fs::read_dir(&self.path))? else { return Ok(Vec::new()) };
        // Files of other names are left alone.
        entries
            .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
            .collect()
    }

    /// Lists all files with their sizes in bytes, except those that are being written.
    pub fn sizes(&self) -> Vec<(String, u64)> {
        let size = |name: String| {
            let size = fs::symlink_metadata(self.path.join(&name)).ok()?.len();
            Some((name, size))
        };
        let names = self.names().unwrap_or_default();
        names.into_iter().filter(|name| !name.starts_with(TEMPORARY)).filter_map(size).collect()
    }

    /// Removes a file that was set aside. A failure is logged.
    pub fn remove_damaged(&self, name: &str) {
        logged("removing", &self.path.join(name), |path| {
            self.step(Step::Remove)?;
            fs::remove_file(path)
        });
    }

    /// Frees the room of a file that was set aside; its name stays. A failure is logged.
    pub fn empty_damaged(&self, name: &str) {
        logged("emptying", &self.path.join(name), |path| {
            self.step(Step::Remove)?;
            File::options().write(true).open(path)?.set_len(0)
        });
    }

    /// Opens the file of a window, whatever its form is now.
    pub fn open(&self, seq: u64) -> io::Result<File> {
        let mut result = Err(io::ErrorKind::NotFound.into());
        let _no_other_content = self.spares.as_deref().map(Spares::lock);
        // The forms are tried in the order of renaming, so that a rename meanwhile hides no file.
        for form in Form::READABLE {
            result = File::open(self.file(seq, form));
            match &result {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        result
    }

    /// Creates a temporary file, which is removed on drop unless [`Self::publish`] gives it a name.
    pub fn create(&self) -> io::Result<NamedTempFile> {
        self.step(Step::Write)?;
        let create = || tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.path);
        // The file has mode 0600.
        match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make()?;
                create()
            }
            created => created,
        }
    }

    /// Returns a file for the content of a window, as [`Self::create`] does. The file may have another content before, whose
    /// length is returned, too.
    pub fn create_window(&self) -> io::Result<(NamedTempFile, u64)> {
        let (spares, log) = (self.spares.as_ref(), self.log.as_ref());
        match spares.zip(log).and_then(|(spares, log)| spares.for_window(log)) {
            Some(spare) => self.step(Step::Write).map(|()| spare),
            None => self.create().map(|file| (file, 0)),
        }
    }

    /// Removes spare files, so that there is more room. Returns false if there was none.
    pub fn give_up_spares(&self) -> bool {
        self.spares.as_ref().is_some_and(|spares| spares.give_up())
    }

    /// Makes the directory if it is missing.
    pub fn make(&self) -> io::Result<()> {
        if !self.path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
            for made in self.path.ancestors().skip(1).take(2) {
                sync(made)?;
            }
        }
        Ok(())
    }

    /// The baseline file of the open window `seq` of the deployment with this serial.
    pub fn baseline(&self, seq: u64, serial: u64) -> PathBuf {
        self.path.join(format!("{seq}.{serial}.{BASELINE}"))
    }

    /// Every baseline, as the number of its window and the serial of its deployment.
    pub fn baselines(&self) -> io::Result<BTreeSet<(u64, u64)>> {
        Ok(self.names()?.iter().filter_map(|name| parse_baseline(name)).collect())
    }

    /// Gives a baseline its name, after all of it is on disk.
    pub fn publish_baseline(&self, file: NamedTempFile, seq: u64, serial: u64) -> io::Result<()> {
        self.step(Step::Write)?;
        file.as_file().sync_all()?;
        file.persist(self.baseline(seq, serial)).map_err(|error| error.error)?;
        sync(&self.path)
    }

    /// Gives the baseline of serial `from` to serial `to` as well, by a hard link.
    pub fn link_baseline(&self, seq: u64, from: u64, to: u64) -> io::Result<()> {
        self.step(Step::Create)?;
        match fs::hard_link(self.baseline(seq, from), self.baseline(seq, to)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => linked?,
        }
        sync(&self.path)
    }

    /// Removes a baseline. A failure is logged.
    pub fn remove_baseline(&self, seq: u64, serial: u64) {
        logged("removing", &self.baseline(seq, serial), |path| {
            self.step(Step::Remove)?;
            fs::remove_file(path)
        });
    }

    /// Renames a damaged baseline. A failure is logged.
    pub fn set_baseline_aside(&self, seq: u64, serial: u64) {
        let to = self.path.join(format!("{seq}.{serial}.{BASELINE}.damaged"));
        logged("setting aside", &self.baseline(seq, serial), |from| fs::rename(from, to));
    }

    /// The path of `state.json`.
    pub fn state(&self) -> PathBuf {
        self.path.join(STATE)
    }

    /// Reads `state.json`; `None` if there is none.
    pub fn read_state(&self) -> io::Result<Option<Vec<u8>>> {
        if_there(fs::read(self.state()))
    }

    /// Renames a damaged `state.json`. A failure is logged.
    pub fn set_state_aside(&self) {
        let to = self.path.join(DAMAGED_STATE);
        logged("setting aside", &self.state(), |from| fs::rename(from, to));
    }

    /// Renames the file of a window to another form. Returns false after a failure, which is logged.
    pub fn rename(&self, seq: u64, from: Form, to: Form) -> bool {
        logged("renaming", &self.file(seq, from), |path| {
            self.step(Step::Rename)?;
            fs::rename(path, self.file(seq, to))?;
            self.note(Change::Renamed { seq, form: to });
            Ok(())
        })
    }

    /// Removes the file of a window. A failure is logged.
    pub fn remove(&self, seq: u64, form: Form) {
        logged("removing", &self.file(seq, form), |path| {
            self.step(Step::Remove)?;
            if !Form::READABLE.contains(&form) {
                return fs::remove_file(path);
            }
            let spare = self.spares.as_ref().and_then(|spares| spares.set_aside(path));
            if spare.is_none() {
                fs::remove_file(path)?;
            }
            let removal = self.note(Change::Removed { seq });
            spare.map_or(Ok(()), |spare| self.set_aside(spare, removal))
        });
    }

    /// Creates a file that says that a window was lost, while the state can't be written.
    pub fn mark_lost(&self, seq: u64) {
        logged("creating", &self.file(seq, Form::Lost), |path| {
            self.step(Step::Create)?;
            File::create(path).map(drop)
        });
    }

    /// Removes the directory with all files.
    pub fn remove_all(&self) -> io::Result<()> {
        self.give_up_spares();
        if_there(fs::remove_dir_all(&self.path))?;
        self.note(Change::AllRemoved);
        Ok(())
    }

    pub fn step(&self, step: Step) -> io::Result<()> {
        #[cfg(test)]
        self.faults.at(step)?;
        let _ = step;
        Ok(())
    }
}

/// Returns `None` if what was asked for does not exist.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Syncs a directory, so that renames and removals in it last.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes a change that the next start repeats if it fails. Logs a failure and returns false.
fn logged(action: &str, path: &Path, change: impl FnOnce(&Path) -> io::Result<()>) -> bool {
    let result = change(path);
    if let Err(error) = &result {
        tracing::error!(path = %path.display(), %error, "{action} a file of a window failed");
    }
    result.is_ok()
}

/// The number at the beginning of the name of a file that was set aside; `None` if the file has another name. A file
/// without a number is the newest.
pub fn damaged_number(name: &str) -> Option<u64> {
    let name = name.strip_suffix(".damaged")?;
    Some(name.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX))
}

/// Tells whether a file of this name is a baseline.
pub fn is_baseline(name: &str) -> bool {
    parse_baseline(name).is_some()
}

/// Parses `SEQ.FORM`, exactly as it is written.
pub fn parse(name: &str) -> Option<(u64, Form)> {
    let (number, suffix) = name.split_once('.')?;
    let form = Form::ALL.into_iter().find(|form| form.suffix() == suffix)?;
    Some((parse_number(number)?, form))
}

/// Parses `SEQ.SERIAL.baseline`, exactly as it is written.
fn parse_baseline(name: &str) -> Option<(u64, u64)> {
    let (seq, rest) = name.split_once('.')?;
    let (serial, suffix) = rest.split_once('.')?;
    let serial = serial.parse().ok().filter(|number: &u64| number.to_string() == serial)?;
    (suffix == BASELINE).then_some((parse_number(seq)?, serial))
}

fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| *number > 0 && number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_we_name_so_is_a_window() {
        assert_eq!(parse("7.window"), Some((7, Form::Window)));
        assert_eq!(parse("18446744073709551615.taken"), Some((u64::MAX, Form::Taken)));
        for name in
            ["0.window", "07.window", "+7.window", "7.windows", "7", ".window", "7.a.window", "state.json"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse_baseline("7.12.baseline"), Some((7, 12)));
        for name in ["0.1.baseline", "7.baseline", "7.01.baseline", "7.1.baseline.damaged", "7.window"] {
            assert_eq!(parse_baseline(name), None, "{name}");
        }
    }
}
