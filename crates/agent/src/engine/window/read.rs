//! Readings that close no window. They show maps that a reading leaves unchanged and, for a probe
//! with an interval, the last closed window; or the counts of the open window so far.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinprobe_ebpf_common::{Context, MapFamily, MetricHead, Window};
use twinprobe_exporter::Metric;
use twinprobe_kernel::clock::{Moment, rfc3339};
use twinprobe_windows::WindowReader;

use crate::engine::error::CloseError;
use crate::engine::probe::running::Running;
use crate::engine::reading::metric::MapOfInterface;
use crate::engine::reading::metric::MetricState;
use crate::engine::window::delivery::{Delivery, DocumentPart, ReadingSubject, Rows};
use crate::engine::window::live::LiveMap;

impl Running {
    /// Returns a reading that closes no window: the last closed window, if there is one, and the
    /// metrics that belong to no window.
    pub fn compose(&self) -> Delivery {
        // Retained windows of an earlier configuration are not part of a reading if this
        // configuration has no windows.
        let newest = self.open.windows.newest().filter(|_| self.open.resets());
        let last = newest.and_then(|stored| stored.open().ok());
        let last = last
            .filter(|last| self.is_own(last.head.origin.as_deref()))
            .map(Arc::new);
        self.refresh_exactness();
        self.exactness.note_packets(self.open.unsure_so_far());
        let shown = self.open.metrics.iter().filter(|reader| reader.is_shown());
        Delivery {
            probe: self.config.name.clone(),
            origin: Some(Arc::clone(&self.origin)),
            interfaces: self.interfaces(),
            approximate: self.exactness.text(&self.open.attached.places),
            subject: ReadingSubject::Live {
                last: last.as_ref().map(|last| last.head.window.clone()),
            },
            context: Arc::new(self.context()),
            format: self.config.format,
            parts: shown
                .map(|reader| self.part(reader, last.as_ref()))
                .collect(),
            skipped_before: self.skipped.load(Ordering::Relaxed),
            skipped: Arc::clone(&self.skipped),
        }
    }

    /// Returns the counts so far: in the open window, and in sums up to now. The reading does not
    /// flip and resets nothing, so packets change the maps during the reading. Queues and stacks,
    /// which can only be popped, have no rows.
    pub fn peek(&mut self) -> Result<Delivery, CloseError> {
        self.finish_window()?;
        self.open.load_base()?;
        let delivery = self.compose();
        if !self.open.resets() {
            return Ok(delivery);
        }
        let shown = self.open.metrics.iter().filter(|reader| reader.is_shown());
        let part = |(reader, part): (&MetricState, DocumentPart)| match reader.extraction.resets() {
            true => self.counted_so_far(reader, &delivery.context),
            false => Ok(part),
        };
        let parts = shown
            .zip(delivery.parts)
            .map(part)
            .collect::<Result<Vec<_>, _>>()?;
        let span = self.open.opened.until(Moment::now());
        let window = Window {
            seq: self.open.attached.epoch.current(),
            start: rfc3339(span.start),
            end: rfc3339(span.end),
            duration_ns: Some(span.duration_ns),
            clock_step_ns: span.step_ns,
            quiesce_us: 0,
            lost_windows: 0,
        };
        Ok(Delivery {
            parts,
            subject: ReadingSubject::Live { last: Some(window) },
            ..delivery
        })
    }

    /// Reads the map in which packets are counted now, and adds its rows to the metric's earlier
    /// counts.
    fn counted_so_far(
        &self,
        reader: &MetricState,
        context: &Context,
    ) -> Result<DocumentPart, CloseError> {
        let metric = self.open.with_losses(reader);
        let is_popped = metric.layout.kind.family() == MapFamily::Fifo;
        if is_popped || self.open.map_now(reader.position).is_none() {
            return Ok(DocumentPart {
                metric,
                rows: Rows::None,
            });
        }
        let rows = reader.maps.read(|position| self.open.map_now(position))?;
        let before = reader
            .sum
            .as_ref()
            .map(|sum| &sum.rows)
            .or(reader.carried.as_ref());
        let Some(mut all) = before.cloned() else {
            return Ok(DocumentPart {
                metric,
                rows: Rows::Held(Arc::new(rows)),
            });
        };
        all.add(
            &rows,
            self.open.attached.epoch.current(),
            context.boot_time_ns,
        );
        let layout = Arc::clone(all.layout());
        let metric = Metric::clone(&metric).with(|head| head.layout = layout);
        Ok(DocumentPart {
            metric: Arc::new(metric),
            rows: Rows::Held(Arc::new(all.take())),
        })
    }

    fn part(&self, reader: &MetricState, last: Option<&Arc<WindowReader>>) -> DocumentPart {
        let metric = Arc::clone(&reader.metric);
        if !reader.extraction.resets() {
            let of = |of: &MapOfInterface| {
                Some((
                    of.clone(),
                    Arc::clone(self.open.attached.live_map(of.position.0, of.position.1)?),
                ))
            };
            let maps: Vec<_> = reader.maps.maps.iter().filter_map(of).collect();
            let layout = Arc::clone(&reader.maps.layout);
            let rows = match maps.is_empty() {
                true => Rows::None,
                false => Rows::Live(LiveMap {
                    maps,
                    layout,
                    gone: self.gone.subscribe(),
                }),
            };
            return DocumentPart {
                metric: self.open.with_losses(reader),
                rows,
            };
        }
        let stored = last.and_then(|window| {
            let is_it = |stored: &MetricHead| {
                stored.direction == metric.direction && stored.name == metric.name
            };
            Some(DocumentPart::stored(
                window,
                window.head.metrics.iter().position(is_it)?,
            ))
        });
        // No window may have been closed since the metric was configured.
        stored.unwrap_or(DocumentPart {
            metric,
            rows: Rows::None,
        })
    }
}
