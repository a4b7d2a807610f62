//! The windows of an earlier version, which had a directory of files for each probe: `SEQ.window`,
//! `SEQ.taken` and `SEQ.acked` by the state of a window, `SEQ.damaged` and the empty `SEQ.lost` for
//! lost windows, `SEQ.SERIAL.baseline`, and `state.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_store::{Change, Error};

use crate::body::content::Content;
use crate::body::draft::{Bodies, LARGEST};
use crate::body::format::Unusable;
use crate::body::head::ClosedBy;
use crate::body::stored::{self, BodySource, StoredWindow};
use crate::index::state::{SeriesState, Undecodable};
use crate::retention::DAMAGED_WINDOWS;
use crate::rows::{self, Baseline, Form, WindowRow};
use crate::store::BODIES;
use crate::windows::Windows;

/// A row for the database, and the file that becomes its body.
struct PlannedRow<Row> {
    row: Row,
    path: PathBuf,
    is_file: bool,
}

/// The windows of one probe.
struct TakeoverPlan {
    series: i64,
    name: String,
    state: SeriesState,
    windows: Vec<PlannedRow<WindowRow>>,
    baselines: Vec<PlannedRow<((u64, u64), Baseline)>>,
}

/// The form of a window in the name of its file. The order is that of renaming: if a window has
/// several files, the last form is the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FileForm {
    Window,
    Taken,
    Acked,
    Damaged,
    Lost,
}

/// Plans the change that brings the windows of these probes from files below `state_dir` into the
/// store. Large bodies get their new names at once. Fails, and changes nothing, if a file can't be
/// read now.
pub fn take_over(state_dir: &Path, names: &BTreeSet<String>) -> io::Result<Change> {
    let bodies = Bodies::new(state_dir.join(BODIES));
    let mut plans = Vec::new();
    for (name, series) in names.iter().zip(1..) {
        let directory = state_dir.join("windows").join(name);
        if directory.is_dir() {
            plans.push(plan(&directory, name, series, &bodies)?);
        }
    }
    for plan in &plans {
        let windows = plan
            .windows
            .iter()
            .map(|window| (window.row.id, window.is_file, &window.path));
        let baselines = plan
            .baselines
            .iter()
            .map(|base| (base.row.1.id, base.is_file, &base.path));
        for (id, _, path) in windows.chain(baselines).filter(|(_, is_file, _)| *is_file) {
            bodies.link(id, path)?;
        }
    }
    Ok(Box::new(move |connection| {
        plans.iter().try_for_each(|plan| plan.write(connection))
    }))
}

impl TakeoverPlan {
    fn write(&self, connection: &twinprobe_store::Connection) -> twinprobe_store::Result<()> {
        let body = |path: &Path, is_file: bool| {
            let read = (!is_file).then(|| fs::read(path)).transpose();
            read.map_err(|error| Error::ToSqlConversionFailure(error.into()))
        };
        rows::save_series(connection, self.series, &self.name, &self.state.encode())?;
        for PlannedRow { row, path, is_file } in &self.windows {
            row.insert(connection, body(path, *is_file)?.as_deref())?;
        }
        for PlannedRow {
            row: (key, baseline),
            path,
            is_file,
        } in &self.baselines
        {
            rows::insert_baseline(
                connection,
                self.series,
                *key,
                baseline,
                body(path, *is_file)?.as_deref(),
            )?;
        }
        Ok(())
    }
}

fn plan(directory: &Path, name: &str, series: i64, bodies: &Bodies) -> io::Result<TakeoverPlan> {
    let mut state = read_state(&directory.join("state.json"))?;
    let (mut forms, mut baselines) = (BTreeMap::<u64, BTreeSet<FileForm>>::new(), Vec::new());
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some((seq, form)) = parse_window(name) {
            forms.entry(seq).or_default().insert(form);
        } else if let Some(key) = parse_baseline(name) {
            let bytes = entry.metadata()?.len();
            let is_file = bytes > LARGEST as u64;
            let baseline = Baseline {
                id: bodies.draft().id,
                bytes,
                is_file,
            };
            baselines.push(PlannedRow {
                row: (key, baseline),
                path: entry.path(),
                is_file,
            });
        }
    }
    let known = forms.keys().copied();
    state.first = if state.first == 0 {
        known.clone().next().unwrap_or(0)
    } else {
        state.first
    };
    state.last = state.last.max(known.last().unwrap_or(0));
    let acked = forms
        .iter()
        .filter(|(_, forms)| forms.contains(&FileForm::Acked))
        .map(|(seq, _)| *seq);
    state.acknowledged = acked.fold(state.acknowledged, u64::max);
    let (mut windows, mut damaged) = (Vec::new(), Vec::new());
    for (&seq, forms) in &forms {
        let readable = forms.iter().rev().find(|form| **form <= FileForm::Acked);
        let mut is_lost = forms.contains(&FileForm::Lost) || forms.contains(&FileForm::Damaged);
        if let Some(form) = readable {
            match examine(directory, seq, *form)? {
                Some(window) => {
                    if seq > state.reported_through {
                        (state.reported, state.reported_through) =
                            (state.reported + window.reports, seq);
                    }
                    windows.push((window, *form));
                    // A window that was once damaged may have been stored again later.
                    is_lost = forms.contains(&FileForm::Lost);
                }
                None => {
                    is_lost = true;
                    damaged.push((seq, *form));
                }
            }
        }
        if forms.contains(&FileForm::Damaged) {
            damaged.push((seq, FileForm::Damaged));
        }
        if is_lost
            && !state.lost.contains(seq)
            && (seq > state.acknowledged || forms.contains(&FileForm::Lost))
        {
            state.lost.add(seq, 0);
            state.damaged += u64::from(!forms.contains(&FileForm::Lost));
        }
    }
    let newest = windows
        .iter()
        .map(|(window, _)| window.seq())
        .rfind(|&seq| !state.lost.contains(seq));
    let mut planned = Vec::new();
    for (mut window, form) in windows {
        let seq = window.seq();
        let kept = match form {
            _ if state.lost.contains(seq) => continue,
            _ if seq <= state.acknowledged && Some(seq) != newest => continue,
            _ if seq <= state.acknowledged => Form::Acknowledged,
            FileForm::Taken => Form::Taken,
            _ => Form::Closed,
        };
        (window.id, window.is_file) = (bodies.draft().id, window.entry.bytes > LARGEST as u64);
        let path = directory.join(format!("{seq}.{}", suffix(form)));
        let row = WindowRow::new(series, &window, kept);
        planned.push(PlannedRow {
            row,
            path,
            is_file: window.is_file,
        });
    }
    for &(seq, form) in damaged.iter().rev().take(DAMAGED_WINDOWS).rev() {
        let path = directory.join(format!("{seq}.{}", suffix(form)));
        let bytes = fs::metadata(&path)?.len();
        let window = StoredWindow {
            entry: WindowEntry {
                seq,
                start: String::new(),
                end: String::new(),
                bytes,
            },
            closed_by: ClosedBy::Request,
            instance: String::new(),
            from: seq,
            reports: 0,
            id: bodies.draft().id,
            is_file: bytes > LARGEST as u64,
            source: Weak::<Windows>::new(),
        };
        let row = WindowRow::new(series, &window, Form::Damaged);
        planned.push(PlannedRow {
            row,
            path,
            is_file: window.is_file,
        });
    }
    baselines.retain(|baseline| baseline.row.0.0 > newest.unwrap_or(0));
    Ok(TakeoverPlan {
        series,
        name: name.to_owned(),
        state,
        windows: planned,
        baselines,
    })
}

/// Returns the planned row of a window; `None` if the file is damaged.
fn examine(directory: &Path, seq: u64, form: FileForm) -> io::Result<Option<StoredWindow>> {
    let path = directory.join(format!("{seq}.{}", suffix(form)));
    let unread = |reason: String| io::Error::other(format!("{}: {reason}", path.display()));
    let file = File::open(&path).map_err(|error| unread(error.to_string()))?;
    let bytes = file.metadata()?.len();
    match stored::open(Content::File(file), seq) {
        Ok(reader) => {
            let source: Weak<dyn BodySource> = Weak::<Windows>::new();
            let window = StoredWindow::new(&reader.head, source);
            Ok(Some(StoredWindow {
                entry: WindowEntry {
                    bytes,
                    ..window.entry.clone()
                },
                ..window
            }))
        }
        Err(Unusable::Damaged(reason)) => {
            tracing::error!(path = %path.display(), reason, "a window of an earlier version is damaged");
            Ok(None)
        }
        Err(error) => Err(unread(error.to_string())),
    }
}

fn read_state(path: &Path) -> io::Result<SeriesState> {
    let unread = |reason: String| io::Error::other(format!("{}: {reason}", path.display()));
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SeriesState::default()),
        bytes => bytes.map_err(|error| unread(error.to_string()))?,
    };
    match SeriesState::decode(&bytes) {
        Ok(state) => Ok(state),
        Err(Undecodable::Newer(version)) => Err(unread(format!("it has format {version}"))),
        Err(Undecodable::Damaged) => {
            tracing::error!(path = %path.display(), "the state of windows is damaged; window files restore it");
            Ok(SeriesState::default())
        }
    }
}

const fn suffix(form: FileForm) -> &'static str {
    match form {
        FileForm::Window => "window",
        FileForm::Taken => "taken",
        FileForm::Acked => "acked",
        FileForm::Damaged => "damaged",
        FileForm::Lost => "lost",
    }
}

/// Parses `SEQ.FORM`, exactly as it was written.
fn parse_window(name: &str) -> Option<(u64, FileForm)> {
    let (number, form) = name.split_once('.')?;
    let all = [
        FileForm::Window,
        FileForm::Taken,
        FileForm::Acked,
        FileForm::Damaged,
        FileForm::Lost,
    ];
    Some((
        parse_number(number)?,
        all.into_iter().find(|known| suffix(*known) == form)?,
    ))
}

/// Parses `SEQ.SERIAL.baseline`, exactly as it was written.
fn parse_baseline(name: &str) -> Option<(u64, u64)> {
    let (seq, serial) = name.strip_suffix(".baseline")?.split_once('.')?;
    let serial = serial
        .parse()
        .ok()
        .filter(|number: &u64| number.to_string() == serial)?;
    Some((parse_number(seq)?, serial))
}

fn parse_number(text: &str) -> Option<u64> {
    text.parse()
        .ok()
        .filter(|number: &u64| *number > 0 && number.to_string() == text)
}
