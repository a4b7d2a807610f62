//! Random operations on real windows and on the model.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::body::format::Encoder;
use crate::body::stored::WindowError;
use crate::retention::{AckError, RetentionLimits};
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
    SetLimits(RetentionLimits),
    DropOldest,
    /// Changes a byte of a body; a reader must notice.
    Damage {
        pick: u64,
        byte: usize,
    },
    /// Removes the probe and makes it again.
    Remove,
    /// Starts the daemon again, after an orderly end or a crash.
    Reopen {
        in_order: bool,
    },
    /// Fills the disk, or makes room on it.
    Full(bool),
}

fn limits() -> impl Strategy<Value = RetentionLimits> {
    let bytes = prop_oneof![3 => Just(u64::MAX), 1 => 0_u64..20_000];
    (
        1_usize..6,
        bytes,
        subsequence(&COLLECTORS[..2], 0..=2),
        any::<bool>(),
    )
        .prop_map(|(retain, bytes, collectors, taken_counts)| {
            let collectors = collectors.into_iter().map(str::to_owned).collect();
            RetentionLimits {
                retain,
                bytes,
                collectors,
                taken_counts,
            }
        })
}

pub fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let closed_by = prop_oneof![
        Just(ClosedBy::Read),
        Just(ClosedBy::Request),
        Just(ClosedBy::Schedule)
    ];
    let skipped = prop_oneof![9 => Just(0_u64), 1 => 1_u64..3];
    // The largest bodies are stored as files.
    let size = prop_oneof![9 => 0_usize..60, 1 => 6_000_usize..7_000];
    let collector = option::of(proptest::sample::select(&COLLECTORS[..]));
    let (pick, byte) = (any::<u64>(), any::<usize>());
    prop_oneof![
        8 => (skipped, size, closed_by)
            .prop_map(|(skipped, size, closed_by)| Commit { skipped, size, closed_by }),
        1 => Just(Abandon),
        3 => pick.prop_map(|pick| Take { pick }),
        3 => (pick, collector).prop_map(|(pick, collector)| Acknowledge { pick, collector }),
        2 => limits().prop_map(SetLimits),
        1 => Just(DropOldest),
        1 => (pick, byte).prop_map(|(pick, byte)| Damage { pick, byte }),
        1 => any::<bool>().prop_map(|in_order| Reopen { in_order }),
        1 => any::<bool>().prop_map(Full),
        1 => Just(Remove),
    ]
}

pub struct Scene {
    path: PathBuf,
    store: WindowStore,
    pub windows: Arc<Windows>,
    pub model: Model,
    is_full: bool,
}

impl Scene {
    pub fn new(path: &Path) -> Self {
        let store = store(path);
        Self {
            windows: store.of("p"),
            store,
            path: path.to_owned(),
            model: Model::default(),
            is_full: false,
        }
    }

    pub fn run(&mut self, operation: &Operation) {
        let Self {
            windows,
            model,
            is_full,
            ..
        } = self;
        let is_full = *is_full;
        match operation {
            Operation::Full(is_full) => self.set_full(*is_full),
            Operation::Reopen { in_order } => self.reopen(*in_order),
            Operation::Damage { pick, byte } => self.damage(*pick, *byte),
            Operation::Remove => {
                let Ok(()) = self.store.remove("p", |change| {
                    let database = &self.windows.database;
                    database.commit(Durable::Now, true, change).unwrap();
                    Ok::<(), std::convert::Infallible>(())
                });
                self.windows = self.store.of("p");
                self.model = Model::default();
                self.set_full(is_full);
            }
            Operation::Commit {
                skipped,
                size,
                closed_by,
            } => {
                let result = write(windows, 1 + skipped, *size, *closed_by);
                if is_full {
                    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
                } else {
                    result.unwrap();
                    expect_commit(model, 1 + skipped, *size, *closed_by);
                }
            }
            Operation::Abandon => {
                let head = head(windows.last_seq() + 1, ClosedBy::Read, 0);
                drop(
                    windows
                        .write(&head)
                        .map(|mut writer| writer.rows(0, &rows(1, 9_000))),
                );
            }
            Operation::Take { pick } => {
                let seq = pick % (model.last + 2);
                windows.set_taken(seq);
                if !is_full {
                    model.take(seq);
                }
            }
            Operation::Acknowledge { pick, collector } => {
                let seq = pick % (model.last + 2);
                let mut after = model.clone();
                let expected = after.acknowledge(seq, *collector);
                match windows.acknowledge(seq, *collector) {
                    Err(AckError::NotWritten(kind)) => {
                        assert!(is_full && kind == io::ErrorKind::StorageFull);
                    }
                    answer => {
                        assert_eq!(answer, expected);
                        *model = after;
                    }
                }
            }
            Operation::SetLimits(limits) => {
                windows.set_limits(limits.clone());
                if is_full {
                    // The next change removes the windows that exceed the limits.
                    model.limits = limits.clone();
                } else {
                    model.set_limits(limits.clone());
                }
            }
            Operation::DropOldest if is_full => assert!(!windows.drop_oldest()),
            Operation::DropOldest => assert_eq!(windows.drop_oldest(), model.drop_oldest()),
        }
        assert_eq!(view(&self.windows), self.model.view());
    }

    /// Changes a byte of a body, and reads the window.
    fn damage(&mut self, pick: u64, byte: usize) {
        let candidates = self.model.files();
        let Some(at) = usize::try_from(pick)
            .unwrap_or_default()
            .checked_rem(candidates.len())
        else {
            return;
        };
        let seq = candidates[at];
        let window = self
            .windows
            .get(seq)
            .ok()
            .or_else(|| self.windows.newest())
            .unwrap();
        if self.is_full {
            // The full disk has no room for the note that the window is damaged.
            return;
        }
        damage(&self.path, &window, byte);
        self.model.damage(seq);
        assert!(matches!(window.open(), Err(WindowError::Damaged(_))));
    }

    pub fn set_full(&mut self, is_full: bool) {
        self.windows.is_full.store(is_full, Ordering::Relaxed);
        self.is_full = is_full;
    }

    /// Starts the daemon again, and checks that all content is as before.
    pub fn reopen(&mut self, in_order: bool) {
        let limits = self.model.limits.clone();
        let database = Arc::clone(&self.windows.database);
        if in_order {
            database.close();
        } else {
            // The process ends without a further write.
            std::mem::forget(database);
        }
        self.store = store(&self.path);
        self.windows = self.store.of("p");
        self.is_full = false;
        self.windows.set_limits(limits.clone());
        self.model.set_limits(limits);
        for (&seq, kept) in &self.model.retained {
            let reader = self.windows.get(seq).unwrap().open().unwrap();
            assert_eq!(reader.head.closed_by, kept.closed_by);
            assert_eq!(reader.chunk(0, 0).unwrap(), Some(rows(seq, kept.size)));
        }
        let of = self.windows.index.lock().all().0;
        assert_eq!(
            bodies(&self.path).len(),
            of.iter().filter(|(_, is_file)| *is_file).count()
        );
    }
}

/// Changes a byte of the body of a window.
pub fn damage(directory: &Path, window: &StoredWindow, byte: usize) {
    if window.is_file {
        let path = directory.join(crate::BODIES).join(window.id.to_string());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = byte % bytes.len();
        bytes[at] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
        return;
    }
    let mut bytes = bytes(window);
    let at = byte % bytes.len();
    bytes[at] ^= 0x10;
    put_body(directory, window, &bytes);
}

/// Gives a window another body, without a change of its row.
pub fn put_body(directory: &Path, window: &StoredWindow, bytes: &[u8]) {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    tamper(
        directory,
        &format!(
            "UPDATE windows SET body = x'{digits}' WHERE id = {}",
            window.id
        ),
    );
}

fn expect_commit(model: &mut Model, step: u64, size: usize, closed_by: ClosedBy) {
    let seq = model.last + step;
    let lost = model.lost.len() as u64 - model.reported;
    let mut encoder = Encoder::new(io::sink(), &head(seq, closed_by, lost)).unwrap();
    encoder.rows(0, &rows(seq, size)).unwrap();
    let bytes = encoder.finish().unwrap().1;
    model.commit(
        seq,
        Kept {
            size,
            bytes,
            closed_by,
            taken: false,
        },
    );
}

fn write(windows: &Arc<Windows>, step: u64, size: usize, closed_by: ClosedBy) -> io::Result<()> {
    let seq = windows.last_seq() + step;
    let mut writer = windows.write(&head(seq, closed_by, windows.unreported_lost(seq)))?;
    writer.rows(0, &rows(seq, size))?;
    assert_eq!(writer.commit()?.seq(), seq);
    Ok(())
}
