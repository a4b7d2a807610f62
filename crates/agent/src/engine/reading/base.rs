//! What a deployment starts from: the sums of the windows so far and rows of the open one, which it has from its
//! predecessor or from disk.

use std::io;

use super::{CloseError, Kept, Running};
use crate::crash;
use crate::engine::old_sums::OldSums;
use crate::engine::reader::Reader;
use crate::engine::windows::{BaseError, ClosedBy, Part, Windows};
use crate::kernel::{Deployable, LoadedDirection, Remains};
use crate::report::{Finding, Stage};
use twinprobe_ebpf_common::convert::carries;
use twinprobe_ebpf_common::{RawTable, TableLayout};

/// The deployment before this one, if it does not run any more. `None`: it is not known which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Before(pub Option<u64>);

/// Whether what a deployment starts from is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Start {
    Known,
    /// It could not be read so far: no window is closed before it is.
    Awaited(Before),
}

/// Has on disk what the deployment with this serial starts from.
fn save(windows: &Windows, probe: &str, epoch: u64, serial: u64, parts: &[Part]) -> io::Result<()> {
    if parts.is_empty() { Ok(()) } else { windows.write_baseline(probe, epoch, serial, parts) }
}

/// Has readers go on with what is on disk. `adopted`: and with the very maps that an earlier daemon has left.
fn go_on<'a>(
    readers: impl Iterator<Item = &'a mut Reader>,
    windows: &Windows,
    old_sums: &mut OldSums,
    Before(serial): Before,
    adopted: bool,
) -> Result<(), BaseError> {
    let base = windows.base(serial)?;
    // A version that kept sums apart has left no window, or one of its own format.
    let apart = base.as_ref().is_none_or(|base| base.format == Some(1));
    let base = base.unwrap_or_default();
    for reader in readers {
        let mut fits = reader.go_on(base.through, &base.parts);
        if apart
            && let Some(parts) =
                old_sums.parts(reader.direction, reader.metric.as_ref(), base.through, adopted)
        {
            fits = reader.go_on(base.through, &parts);
        }
        if !fits {
            let metric = reader.config.name();
            tracing::error!(metric, "what was counted before is of another layout and can't be gone on with");
        }
    }
    Ok(())
}

/// Has the readers of a new deployment go on with what `old`, or the one before on disk, knows, and brings that onto
/// the disk: once the deployment is committed, it has it.
pub(in crate::engine) fn begin(
    readers: &mut [Reader],
    deployable: &Deployable,
    old: Option<&Running>,
    before: Option<Before>,
    replaces: bool,
    kept: &mut Kept,
    probe: &str,
) -> Result<Start, CloseError> {
    let (serial, windows) = (deployable.record().serial, &kept.windows);
    let kept_ones = readers.iter_mut().filter(|reader| !replaces || reader.carries());
    match (old, before) {
        (Some(old), _) => {
            for reader in kept_ones {
                old.reader_of(reader).into_iter().for_each(|old| reader.succeed(old));
            }
        }
        (None, Some(before)) => match go_on(kept_ones, windows, &mut kept.old_sums, before, false) {
            Ok(()) => {}
            Err(BaseError::Unreadable { .. }) => {
                windows.pass_baseline_on(before.0, serial)?;
                return Ok(Start::Awaited(Before(Some(serial))));
            }
            Err(error) => return Err(error.into()),
        },
        // Of a probe that is new there is nothing.
        (None, None) => {}
    }
    if old.is_some() || before.is_some() || windows.last_seq() > 0 {
        let open = deployable.open_rows()?;
        let parts: Vec<Part> = readers.iter().flat_map(|reader| reader.parts(&open)).collect();
        save(windows, probe, deployable.epoch(), serial, &parts)?;
    }
    Ok(Start::Known)
}

impl Running {
    /// Goes on with what an earlier deployment has left, unless that is known already.
    pub(super) fn load_base(&mut self) -> Result<(), BaseError> {
        if let Start::Awaited(before) = self.start {
            go_on(self.readers.iter_mut(), &self.windows, &mut self.old_sums, before, true)?;
            self.start = Start::Known;
            self.show_sums();
        }
        Ok(())
    }

    /// As [`Self::load_base`] at a start. What keeps it from that is in the status, and it is tried again with each
    /// window.
    pub fn resume(&mut self) {
        match self.load_base() {
            Ok(()) => self.windows.forget_other_baselines(self.attached.serial()),
            Err(error) => {
                let (probe, reason) = (self.config.name(), error.to_string());
                tracing::error!(probe, reason, "windows can't be closed; it is tried again");
                self.trouble = Some(reason);
            }
        }
    }

    /// Takes over what the last programs have counted of the open window, and has it on disk.
    pub(super) fn take_over(&mut self, remains: &[Remains]) {
        for reader in self.readers.iter_mut().filter(|reader| reader.carries()) {
            remains.iter().for_each(|remains| reader.add_remains(remains));
        }
        let (probe, epoch, serial) = (self.config.name(), self.attached.epoch(), self.attached.serial());
        if !remains.is_empty() {
            let parts: Vec<Part> = self.readers.iter().flat_map(|reader| reader.parts(&[])).collect();
            if let Err(error) = save(&self.windows, probe, epoch, serial, &parts) {
                tracing::error!(probe, %error, "what the last programs have counted can't be saved before the next window");
            }
        }
        crash::point("rewritten");
        self.windows.forget_other_baselines(serial);
    }

    /// The reader that had the map of `next`.
    fn reader_of(&self, next: &Reader) -> Option<&Reader> {
        let same = |old: &&Reader| old.direction == next.direction && old.config.map() == next.config.map();
        self.readers.iter().find(same)
    }

    /// `rows` of a map and what is known of it beside them.
    pub fn with_more(&self, direction: &str, map: &str, layout: &TableLayout, rows: RawTable) -> RawTable {
        let own = self.readers.iter().filter(|reader| reader.direction.name() == direction);
        own.fold(rows, |rows, reader| reader.with_more(map, layout, rows))
    }

    /// Maps of a direction of which something is known that is not in them.
    pub fn more_known(&self, direction: &str) -> std::collections::BTreeSet<String> {
        let knows = |reader: &&Reader| reader.direction.name() == direction && reader.knows_more();
        let name = |reader: &Reader| reader.map_name().to_owned();
        self.readers.iter().filter(knows).map(name).collect()
    }

    /// Closes the open window if metrics of `next` can't go on with anything that it holds of them, and says which.
    pub fn close_before(
        &mut self,
        next: &[Reader],
        loaded: &[LoadedDirection],
    ) -> Result<Vec<Finding>, CloseError> {
        let is_cut = |reader: &&Reader| reader.carries() && self.is_cut(reader, &loaded[reader.position.0]);
        let cut: Vec<&Reader> = next.iter().filter(is_cut).collect();
        if cut.is_empty() {
            return Ok(Vec::new());
        }
        let closed = if self.has_windows() {
            let by = if self.schedule().is_some() { ClosedBy::Schedule } else { ClosedBy::Read };
            Some(self.close(by)?.seq())
        } else {
            None
        };
        let finding = |reader: &Reader| {
            let (map, name) = (reader.config.map(), reader.config.name());
            let what = closed.map_or_else(
                || "it is gone".to_owned(),
                |seq| format!("it is in window {seq}, which was closed for that"),
            );
            let message = format!(
                "metric {name} begins anew: nothing of what map {map} has counted fits its new definition; {what}"
            );
            let field = format!("{}.metrics[{}].map", reader.direction, reader.position.1);
            Finding::new(Stage::Load, field, message)
        };
        Ok(cut.into_iter().map(finding).collect())
    }

    /// Whether nothing of what the metric has counted can go on in `next`.
    fn is_cut(&self, next: &Reader, loaded: &LoadedDirection) -> bool {
        let constant = next.config.map().starts_with(".rodata");
        let cut = |old: &Reader| {
            !loaded.takes_over(next.config.map()) && !carries(&old.metric.layout, &next.metric.layout)
        };
        !constant && self.reader_of(next).is_some_and(cut)
    }

    /// Whether the open window of a deployment with these readers has anything of this one.
    pub(super) fn goes_on(&self, next: &[Reader], loaded: &[LoadedDirection]) -> bool {
        let goes_on = |reader: &Reader| {
            reader.is_snapshot()
                && reader.carries()
                && self.reader_of(reader).is_some()
                && !self.is_cut(reader, &loaded[reader.position.0])
        };
        self.has_windows() || next.iter().any(goes_on)
    }
}
