//! The files of one probe's windows. What has become of a window is in the name of its file: renaming needs no
//! room on a full disk, and is done or not done after a crash.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

#[cfg(test)]
use crate::windows::tests::faults;

const STATE: &str = "state.json";
const DAMAGED_STATE: &str = "state.damaged";
const BASELINE: &str = "baseline";
const TEMPORARY: &str = ".new-";

/// What the file of a window is called; a window goes through these in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Nobody has it yet.
    Window,
    /// The client that closed it has all of it.
    Taken,
    /// Acknowledged, and kept for being the newest.
    Acked,
    /// Its content is not what was written.
    Damaged,
    /// Empty: says that it was lost, while there is no room to write that down.
    Lost,
}

impl Form {
    const ALL: [Self; 5] = [Self::Window, Self::Taken, Self::Acked, Self::Damaged, Self::Lost];
    /// Those with a content.
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

/// Where the files are, and what can be done with them.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// Where tests have the process die or the disk be full.
    #[cfg(test)]
    pub faults: faults::Faults,
}

/// What changes a file system, for tests that let it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Needs room.
    Write,
    /// Needs a name at most.
    Create,
    Rename,
    Remove,
}

impl Directory {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            #[cfg(test)]
            faults: faults::Faults::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, seq: u64, form: Form) -> PathBuf {
        self.path.join(format!("{seq}.{}", form.suffix()))
    }

    /// Every window's file, in order.
    pub fn scan(&self) -> io::Result<Vec<(u64, Form)>> {
        let mut found: Vec<(u64, Form)> = self.names()?.iter().filter_map(|name| parse(name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Removes what writers have left that did not come to their end. Nobody may be writing.
    pub fn clean(&self) {
        let names = self.names().unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with(TEMPORARY)) {
            logged("removing", &self.path.join(name), |path| fs::remove_file(path));
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        // Whatever else is there is not ours.
        entries
            .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
            .collect()
    }

    /// The file of a window, whatever it is called now.
    pub fn open(&self, seq: u64) -> io::Result<File> {
        let mut result = Err(io::ErrorKind::NotFound.into());
        // In the order of renaming: it can't be missed by being renamed meanwhile.
        for form in Form::READABLE {
            result = File::open(self.file(seq, form));
            match &result {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        result
    }

    /// A file that goes unless [`Self::publish`] gives it a name.
    pub fn create(&self) -> io::Result<NamedTempFile> {
        self.step(Step::Write)?;
        if !self.path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
            for made in self.path.ancestors().skip(1).take(2) {
                sync(made)?;
            }
        }
        // Of mode 0600.
        tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.path)
    }

    /// Gives a window that is on disk to its end its name. If that fails there is no such file.
    pub fn publish(&self, file: NamedTempFile, seq: u64) -> io::Result<()> {
        self.step(Step::Write)?;
        let path = self.file(seq, Form::Window);
        file.persist_noclobber(&path).map_err(|error| error.error)?;
        // The caller will write it again: there must not be two.
        self.step(Step::Rename)
            .and_then(|()| sync(&self.path))
            .inspect_err(|_| self.remove(seq, Form::Window))
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

    pub fn link_baseline(&self, seq: u64, from: u64, to: u64) -> io::Result<()> {
        self.step(Step::Create)?;
        match fs::hard_link(self.baseline(seq, from), self.baseline(seq, to)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => linked?,
        }
        sync(&self.path)
    }

    pub fn remove_baseline(&self, seq: u64, serial: u64) {
        logged("removing", &self.baseline(seq, serial), |path| {
            self.step(Step::Remove)?;
            fs::remove_file(path)
        });
    }

    pub fn set_baseline_aside(&self, seq: u64, serial: u64) {
        let to = self.path.join(format!("{seq}.{serial}.{BASELINE}.damaged"));
        logged("setting aside", &self.baseline(seq, serial), |from| fs::rename(from, to));
    }

    /// Replaces the state.
    pub fn write_state(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create()?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        self.step(Step::Rename)?;
        file.persist(self.path.join(STATE)).map_err(|error| error.error)?;
        sync(&self.path)
    }

    /// `None` if none was ever written.
    pub fn read_state(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path.join(STATE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => bytes.map(Some),
        }
    }

    pub fn set_state_aside(&self) {
        let to = self.path.join(DAMAGED_STATE);
        logged("setting aside", &self.path.join(STATE), |from| fs::rename(from, to));
    }

    /// Whether it was done.
    pub fn rename(&self, seq: u64, from: Form, to: Form) -> bool {
        logged("renaming", &self.file(seq, from), |path| {
            self.step(Step::Rename)?;
            fs::rename(path, self.file(seq, to))
        })
    }

    pub fn remove(&self, seq: u64, form: Form) {
        logged("removing", &self.file(seq, form), |path| {
            self.step(Step::Remove)?;
            fs::remove_file(path)
        });
    }

    /// Remembers that a window was lost, while the state can't be written.
    pub fn mark_lost(&self, seq: u64) {
        logged("creating", &self.file(seq, Form::Lost), |path| {
            self.step(Step::Create)?;
            File::create(path).map(drop)
        });
    }

    pub fn remove_all(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn step(&self, step: Step) -> io::Result<()> {
        #[cfg(test)]
        self.faults.at(step)?;
        let _ = step;
        Ok(())
    }
}

/// Makes renames and removals last.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// For what is done at the next start if it can't be done now.
fn logged(action: &str, path: &Path, change: impl FnOnce(&Path) -> io::Result<()>) -> bool {
    let result = change(path);
    if let Err(error) = &result {
        tracing::error!(path = %path.display(), %error, "{action} a file of a window failed");
    }
    result.is_ok()
}

/// `SEQ.FORM`, as it is written.
fn parse(name: &str) -> Option<(u64, Form)> {
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
