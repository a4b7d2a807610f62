//! Readings that close no window: live maps, and with an interval the last window that was closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_kernel::KernelError;
use twinprobe_windows::WindowReader;

use super::Running;
use crate::engine::delivery::{Delivery, Part, Reading, Rows};
use crate::engine::live::LiveMap;
use crate::engine::reader::Extract;
use crate::engine::reading::CloseError;
use crate::engine::spool::Spool;

/// A reading whose maps have not been read to their end.
#[derive(Debug)]
pub(super) struct Extraction {
    pub reading: Arc<Reading>,
    /// One for each reader.
    tables: Vec<Extract>,
}

impl Running {
    /// A reading that closes no window: the last one, if there is one, and what belongs to none.
    pub(super) fn compose(&mut self) -> Result<Delivery, CloseError> {
        // Retained windows of an earlier configuration are not part of a reading if this configuration has no windows.
        let newest = self.windows.newest().filter(|_| self.has_windows());
        let last = newest.and_then(|stored| stored.open().ok()).map(Arc::new);
        let tables: Vec<Extract> = self.readers.iter().map(|reader| reader.extract(&self.attached)).collect();
        let reading = Arc::new(Reading {
            probe: self.config.name().to_owned(),
            interfaces: self.interfaces(),
            window: last.as_ref().map(|window| window.head().window.clone()),
            context: Arc::new(self.context()),
            format: self.config.format(),
            parts: self.parts(&tables, last.as_ref()),
            skipped_before: self.skipped.load(Ordering::Relaxed),
            skipped: self.skipped(),
        });
        let takes = tables.iter().any(|table| !table.done);
        let delivery = self.undelivered.deliver(Arc::clone(&reading), takes);
        if takes {
            self.extraction = Some(Extraction { reading, tables });
        }
        Ok(delivery)
    }

    fn parts(&self, tables: &[Extract], last: Option<&Arc<WindowReader>>) -> Vec<Part> {
        let mut parts = Vec::new();
        for (reader, table) in self.readers.iter().zip(tables).filter(|(reader, _)| reader.is_shown()) {
            let direction = reader.direction;
            let mut metric = Arc::clone(&reader.metric);
            let rows = match (&table.spool, reader.live(&self.attached)) {
                (Some(spool), _) => Rows::Kept(Arc::clone(spool)),
                (None, Some(map)) => Rows::Live(LiveMap::new(Arc::clone(map), self.gone.subscribe())),
                (None, None) => {
                    let stored = last.and_then(|window| {
                        let is_it = |(of, stored): &(_, Arc<twinprobe_exporter::Metric>)| {
                            *of == direction && stored.name == metric.name
                        };
                        let place = window.metrics().iter().position(is_it)?;
                        Some((
                            Arc::clone(&window.metrics()[place].1),
                            Rows::Stored(Arc::clone(window), place),
                        ))
                    });
                    match stored {
                        Some((stored, rows)) => {
                            metric = stored;
                            rows
                        }
                        // No window has been closed since it was configured.
                        None => Rows::Kept(Arc::new(Spool::empty())),
                    }
                }
            };
            parts.push(Part { direction, metric, rows });
        }
        parts
    }

    /// Takes out of the maps what a composed reading consists of. After an error nothing is lost: the next
    /// reader goes on where this one ended.
    pub(super) fn extract(&mut self) {
        let Some(mut extraction) = self.extraction.take() else { return };
        if let Err(error) = self.take(&mut extraction) {
            let (probe, reason) = (self.config.name(), with_causes(&error));
            tracing::error!(probe, reason, "a reading failed; the next one goes on");
            extraction.spools().for_each(|spool| spool.fail(&reason));
            self.extraction = Some(extraction);
        }
    }

    pub(super) fn take(&self, extraction: &mut Extraction) -> Result<(), KernelError> {
        for (reader, table) in self.readers.iter().zip(&mut extraction.tables) {
            if let Some(map) = reader.live(&self.attached) {
                reader.take(map, table)?;
                table.spool.iter().for_each(|spool| spool.complete());
            }
        }
        Ok(())
    }
}

impl Extraction {
    pub fn spools(&self) -> impl Iterator<Item = &Arc<Spool>> {
        self.tables.iter().filter_map(|table| table.spool.as_ref())
    }
}
