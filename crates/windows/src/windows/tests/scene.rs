//! Random operations on real windows and on the model.

use std::path::PathBuf;
use std::{fs, io};

use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::file::directory::Directory;
use crate::file::format::Encoder;
use crate::file::stored::WindowError;
use crate::retention::{AckError, Limits};
use crate::windows::tests::model::{COLLECTORS, Kept, Model, view};

/// An operation. `pick` chooses among the windows that exist when the operation runs.
#[derive(Clone, Debug)]
pub enum Operation {
    Commit {
        skipped: u64,
        size: usize,
        closed_by: ClosedBy,
    },
    /// Begins a window and does not finish it.
    Abandon,
    Take {
        pick: u64,
    },
    Acknowledge {
        pick: u64,
        collector: Option<&'static str>,
    },
    SetLimits(Limits),
    DropOldest,
    /// Changes a byte. Either a reader finds the damage, or the next start does.
    Damage {
        pick: u64,
        byte: usize,
        read: bool,
    },
    Reopen {
        temporary: bool,
        full: bool,
    },
    /// Fills the disk, or makes room on it.
    Full(bool),
    /// Kills the process after this number of steps of the operation, then starts again.
    Kill {
        steps: usize,
        operation: Box<Self>,
    },
}

fn limits() -> impl Strategy<Value = Limits> {
    let bytes = prop_oneof![3 => Just(u64::MAX), 1 => 0_u64..20_000];
    (1_usize..6, bytes, subsequence(&COLLECTORS[..2], 0..=2), any::<bool>()).prop_map(
        |(retain, bytes, collectors, taken_counts)| {
            let collectors = collectors.into_iter().map(str::to_owned).collect();
            Limits { retain, bytes, collectors, taken_counts }
        },
    )
}

pub fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let closed_by = prop_oneof![Just(ClosedBy::Read), Just(ClosedBy::Request), Just(ClosedBy::Schedule)];
    let skipped = prop_oneof![9 => Just(0_u64), 1 => 1_u64..3];
    let collector = option::of(proptest::sample::select(&COLLECTORS[..]));
    let (pick, byte) = (any::<u64>(), any::<usize>());
    let single = prop_oneof![
        8 => (skipped, 0_usize..60, closed_by)
            .prop_map(|(skipped, size, closed_by)| Commit { skipped, size, closed_by }),
        1 => Just(Abandon),
        3 => pick.prop_map(|pick| Take { pick }),
        3 => (pick, collector).prop_map(|(pick, collector)| Acknowledge { pick, collector }),
        2 => limits().prop_map(SetLimits),
        1 => Just(DropOldest),
        1 => (pick, byte, any::<bool>()).prop_map(|(pick, byte, read)| Damage { pick, byte, read }),
        1 => any::<[bool; 2]>().prop_map(|[temporary, full]| Reopen { temporary, full }),
    ];
    let single = single.boxed();
    let kill = (0_usize..12, single.clone())
        .prop_map(|(steps, operation)| Kill { steps, operation: Box::new(operation) });
    prop_oneof![8 => single, 3 => kill, 1 => any::<bool>().prop_map(Full)]
}

pub struct Scene {
    pub path: PathBuf,
    pub windows: Arc<Windows>,
    pub model: Model,
    full: bool,
    make: fn(&Path) -> Directory,
}

impl Scene {
    pub fn new(path: PathBuf) -> Self {
        Self::with(path, |path| Directory::new(path.to_owned()))
    }

    /// A scene in which each daemon makes its directory so.
    pub fn with(path: PathBuf, make: fn(&Path) -> Directory) -> Self {
        let windows = Windows::open_in(make(&path), 0, None);
        Self { windows, path, model: Model::default(), full: false, make }
    }

    pub fn directory(&self) -> Directory {
        (self.make)(&self.path)
    }

    pub fn run(&mut self, operation: &Operation) {
        match operation {
            Operation::Kill { steps, operation } => self.kill(*steps, operation),
            Operation::Full(full) => self.set_full(*full),
            Operation::Reopen { temporary, full } => {
                if *temporary {
                    fs::create_dir_all(&self.path).unwrap();
                    fs::write(self.path.join(".new-123456"), b"tpwind01").unwrap();
                }
                let directory = self.directory();
                directory.faults.set_full(*full);
                self.reopen(directory);
                self.full = *full;
            }
            Operation::Damage { pick, byte, read } => {
                let Some(seq) = self.damage(*pick, *byte) else { return };
                self.model.damage(seq);
                if *read {
                    let window = self.windows.get(seq).ok().or_else(|| self.windows.newest()).unwrap();
                    assert!(matches!(window.open(), Err(WindowError::Damaged(_))));
                } else {
                    self.reopen(self.directory());
                    self.full = false;
                }
            }
            other => self.simple(other),
        }
        assert_eq!(view(&self.windows), self.model.view());
    }

    /// Runs an operation that works in both alike, or fails in both.
    pub fn simple(&mut self, operation: &Operation) {
        let Self { windows, model, .. } = self;
        match operation {
            Operation::Commit { skipped, size, closed_by } => {
                let result = write(windows, 1 + skipped, *size, *closed_by);
                if self.full {
                    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
                } else {
                    result.unwrap();
                    Self::expect_commit(model, 1 + skipped, *size, *closed_by);
                }
            }
            Operation::Abandon => {
                let head = head(windows.last_seq() + 1, ClosedBy::Read, 0);
                drop(windows.write(&head).map(|mut writer| writer.rows(0, &rows(1, 9))));
            }
            Operation::Take { pick } => {
                let seq = pick % (model.last + 2);
                windows.set_taken(seq);
                model.take(seq);
            }
            Operation::Acknowledge { pick, collector } => {
                let seq = pick % (model.last + 2);
                let answer = match windows.acknowledge(seq, *collector) {
                    // The acknowledgement holds in memory. A process that is being killed gets other errors.
                    Err(AckError::NotWritten(kind)) if self.full || kind == io::ErrorKind::Other => Ok(()),
                    answer => answer,
                };
                assert_eq!(answer, model.acknowledge(seq, *collector));
            }
            Operation::SetLimits(limits) => {
                windows.set_limits(limits.clone());
                model.set_limits(limits.clone());
            }
            Operation::DropOldest => assert_eq!(windows.drop_oldest(), model.drop_oldest()),
            other => unreachable!("{other:?}"),
        }
    }

    fn expect_commit(model: &mut Model, step: u64, size: usize, closed_by: ClosedBy) {
        let seq = model.last + step;
        let lost = model.lost.len() as u64 - model.reported;
        let mut encoder = Encoder::new(io::sink(), &head(seq, closed_by, lost)).unwrap();
        encoder.rows(0, &rows(seq, size)).unwrap();
        let bytes = encoder.finish().unwrap().1;
        model.commit(seq, Kept { size, bytes, closed_by, taken: false });
    }

    /// Changes a byte of a file, so that its window has to be found damaged. Returns the window's number.
    fn damage(&self, pick: u64, byte: usize) -> Option<u64> {
        let mut candidates = self.model.files();
        if self.full {
            // The name of this file may be the only sign on disk that the window was acknowledged.
            candidates.retain(|&seq| Some(seq) != self.model.acked);
        }
        let seq = *candidates.get(usize::try_from(pick).ok()?.checked_rem(candidates.len())?)?;
        let of_window = |name: &&String| name.starts_with(&format!("{seq}."));
        let path = self.path.join(files(&self.path).iter().find(of_window).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let at = byte % bytes.len();
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
        Some(seq)
    }

    pub fn set_full(&mut self, full: bool) {
        self.windows.directory.faults.set_full(full);
        self.full = full;
    }

    /// Starts again, and checks that all content is as before.
    pub fn reopen(&mut self, directory: Directory) {
        let (limits, unsaved) = (self.model.limits.clone(), self.windows.index.lock().unsaved);
        self.windows = Windows::open_in(directory, 0, None);
        let is_plain = |name: &String| !name.starts_with('.') || self.windows.directory.spares.is_some();
        assert!(files_or_none(&self.path).iter().all(is_plain), "nothing unfinished");
        if unsaved {
            self.model.forget_cursors(&self.windows);
        }
        self.windows.set_limits(limits.clone());
        self.model.set_limits(limits);
        for (&seq, kept) in &self.model.retained {
            let Ok(window) = self.windows.get(seq) else { continue };
            let reader = window.open().unwrap();
            assert_eq!(reader.head.closed_by, kept.closed_by);
            assert_eq!(reader.chunk(0, 0).unwrap(), Some(rows(seq, kept.size)));
        }
    }

    /// Returns the model after a part of a commit: windows that clients have taken go first, because no newer window
    /// may be lost while they exist. If that makes enough room, the next daemon retains an older window that was to be
    /// lost.
    fn between(&self, before: &Model, operation: &Operation) -> Option<Model> {
        let Operation::Commit { skipped, size, closed_by } = operation else { return None };
        let mut between = before.clone();
        let after = &self.model;
        between.retained.retain(|seq, kept| {
            !(kept.taken && before.limits.taken_counts)
                || after.retained.contains_key(seq)
                || after.lost.contains(seq)
        });
        Self::expect_commit(&mut between, 1 + skipped, *size, *closed_by);
        Some(between)
    }

    /// Kills the process within an operation, and checks that the operation was done or was not done.
    fn kill(&mut self, steps: usize, operation: &Operation) {
        self.set_full(false);
        self.windows.set_limits(self.model.limits.clone());
        let before = self.model.clone();
        let faults = self.windows.directory.faults.clone();
        match operation {
            Operation::Damage { pick, byte, .. } => {
                if let Some(seq) = self.damage(*pick, *byte) {
                    self.model.damage(seq);
                    faults.kill_after(steps);
                    let _ = self.windows.get(seq).map(|window| window.open());
                }
            }
            Operation::Reopen { .. } => {
                let directory = self.directory();
                directory.faults.kill_after(steps);
                drop(Windows::open_in(directory, 0, None));
            }
            Operation::Commit { skipped, size, closed_by } => {
                faults.kill_after(steps);
                let _ = write(&self.windows, 1 + skipped, *size, *closed_by);
                Self::expect_commit(&mut self.model, 1 + skipped, *size, *closed_by);
            }
            other => {
                faults.kill_after(steps);
                self.simple(other);
            }
        }
        // The unsaved changes died with the process.
        self.windows.index.lock().unsaved = false;
        self.reopen(self.directory());
        let found = view(&self.windows);
        let between = self.between(&before, operation);
        if between.as_ref().is_some_and(|between| found == between.view()) {
            self.model = between.unwrap_or(before);
        } else if found != self.model.view() {
            assert!(!matches!(operation, Operation::SetLimits(_) | Operation::Damage { .. }), "found again");
            assert_eq!(found, before.view(), "neither before nor after: {:?}", self.model.view());
            self.model = before;
        }
    }
}

fn write(windows: &Arc<Windows>, step: u64, size: usize, closed_by: ClosedBy) -> io::Result<()> {
    let seq = windows.last_seq() + step;
    let mut writer = windows.write(&head(seq, closed_by, windows.unreported_lost()))?;
    writer.rows(0, &rows(seq, size))?;
    assert_eq!(writer.commit()?.seq(), seq);
    Ok(())
}

fn files_or_none(path: &Path) -> Vec<String> {
    if path.exists() { files(path) } else { Vec::new() }
}
