//! The rows of a metric outside its map: the sum of all windows so far, and the rows of the open
//! window that earlier deployments have counted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use twinprobe_api::{JoinStatus, SumStatus};
use twinprobe_ebpf_common::field::leaf::Leaves;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::{MapFamily, MergeRule, RawTable, Shape, TableLayout};
use twinprobe_exporter::Accumulator;
use twinprobe_kernel::clock::monotonic_zero_ns;
use twinprobe_kernel::{Extraction, Remains};
use twinprobe_windows::{BaselinePart, PartContent};

use crate::engine::reading::metric::MetricState;
use crate::engine::reading::sum::Sum;

impl MetricState {
    /// Tells whether the metric has rows outside its map.
    pub const fn knows_more(&self) -> bool {
        self.sum.is_some() || self.carried.is_some()
    }

    /// Returns the number of the last window that had each entry of the sum.
    pub fn ages(&self) -> &[u64] {
        self.sum.as_ref().map_or(&[], |sum| sum.rows.ages())
    }

    /// Returns the status of a sum whose entries come and go; `None` if the metric has no such sum.
    pub fn sum_status(&self) -> Option<SumStatus> {
        let Sum {
            rows,
            max_entries,
            dropped,
            ..
        } = self.sum.as_ref()?;
        Some(SumStatus {
            direction: self.metric.direction,
            metric: self.metric.name.clone(),
            entries: rows.ages().len(),
            max_entries: (*max_entries)?,
            dropped: *dropped,
        })
    }

    /// Returns the fields that are not added when two values are joined; `None` if all fields are
    /// added, or if the metric is not shown.
    pub fn join_status(&self) -> Option<JoinStatus> {
        let layout = self
            .metric
            .layout
            .inner
            .as_ref()
            .unwrap_or(&self.metric.layout);
        let rules = self.request.rules().cloned().unwrap_or_default();
        let mut fields = BTreeMap::new();
        Leaves::new(&layout.value, &mut |path, meaning| {
            let rule = rules.join(path, meaning).rule;
            (rule != MergeRule::Sum)
                .then(|| fields.insert(path.to_owned(), rule))
                .map(drop)
        });
        let (direction, metric) = (self.metric.direction, self.metric.name.clone());
        (self.is_shown() && !fields.is_empty()).then_some(JoinStatus {
            direction,
            metric,
            fields,
        })
    }

    /// Returns the rows that are kept outside of the map, with the rows `open`, which belong to the
    /// open window.
    pub fn parts(&self, open: &[Remains]) -> Vec<BaselinePart> {
        let mut carried = self.carried.clone();
        for rows in open.iter().filter_map(|remains| self.of_remains(remains)) {
            self.carry(&mut carried, &rows, &self.metric.layout);
        }
        let sum = self
            .sum
            .as_ref()
            .map(|sum| (PartContent::Sum, &sum.rows, sum.dropped));
        let carried = carried.as_ref().map(|rows| (PartContent::Open, rows, 0));
        let part = |(content, rows, dropped): (PartContent, &Accumulator, u64)| BaselinePart {
            direction: self.metric.direction,
            map: self.metric.map.clone(),
            metric: Some(self.metric.name.clone()),
            content,
            through: self.sum.as_ref().map_or(0, |sum| sum.through),
            layout: Arc::clone(rows.layout()),
            rows: rows.table().clone(),
            ages: if content == PartContent::Sum {
                rows.ages().to_vec()
            } else {
                Vec::new()
            },
            dropped,
        };
        sum.into_iter().chain(carried).map(part).collect()
    }

    /// Replaces the rows that are kept outside of the map with `parts`, the base after window
    /// `through`. Returns false if some parts do not fit the layout.
    pub fn go_on(&mut self, through: u64, parts: &[BaselinePart]) -> bool {
        self.carried = None;
        if let Some(sum) = &mut self.sum {
            sum.rows.take();
            (sum.through, sum.dropped) = (through, 0);
        }
        let own = [PartContent::Sum, PartContent::Open].map(|content| self.own_of(parts, content));
        let mut fits = true;
        for part in own.into_iter().flatten() {
            fits &= self.go_on_with(part);
        }
        fits
    }

    /// Returns the part with which the metric continues: the part with its name, else the first
    /// part of its map.
    fn own_of<'a>(
        &self,
        parts: &'a [BaselinePart],
        content: PartContent,
    ) -> Option<&'a BaselinePart> {
        let is_own = |part: &&BaselinePart| {
            let is_of_map = part.map == self.metric.map && part.content == content;
            is_of_map && (part.direction == self.metric.direction || self.common)
        };
        let is_other = |part: &&BaselinePart| {
            let named = part
                .metric
                .as_ref()
                .is_none_or(|name| *name == self.metric.name);
            (!named, part.direction != self.metric.direction)
        };
        parts.iter().filter(is_own).min_by_key(is_other)
    }

    fn go_on_with(&mut self, part: &BaselinePart) -> bool {
        let BaselinePart {
            rows,
            layout,
            through,
            ..
        } = part;
        // The replaced deployment may have named no interfaces, or more interfaces than this one.
        let adapted = rows.with_interfaces_of(layout, &self.metric.layout);
        let adapted = adapted.filter(|_| layout.key != self.metric.layout.key || is_popped(layout));
        let (rows, layout, is_adapted) = match &adapted {
            Some((rows, layout)) => (rows, layout, true),
            None => (rows, &**layout, false),
        };
        if part.content == PartContent::Open {
            return self.add_open(rows, layout);
        }
        let Some(sum) = &mut self.sum else {
            return true;
        };
        // Times since the boot are only in baselines of earlier versions, which do not name the
        // boot.
        let fits = sum.rows.add_of(rows, layout, *through, monotonic_zero_ns());
        sum.through = *through;
        // An adaptation that drops the names of interfaces can merge rows. Then the ages belong to
        // other rows.
        if !is_adapted || sum.rows.ages().len() == part.ages.len() {
            sum.rows.set_ages(&part.ages);
        }
        sum.dropped += part.dropped;
        sum.drop_surplus();
        fits
    }

    /// Continues with the rows that `old` keeps outside of its map.
    pub fn succeed(&mut self, old: &Self) {
        for part in old.parts(&[]) {
            self.go_on_with(&part);
        }
    }

    /// Continues with the rows of replaced maps that no reading has returned.
    pub fn add_remains(&mut self, remains: &Remains) {
        if let Some(rows) = self.of_remains(remains) {
            let layout = Arc::clone(&self.metric.layout);
            self.add_open(&rows, &layout);
        }
    }

    /// Adds the rows that are kept outside of the map to `rows`, which come from the map with this
    /// name and layout.
    pub fn with_more(&self, map: &str, layout: &TableLayout, mut rows: RawTable) -> RawTable {
        let known = self
            .sum
            .as_ref()
            .map(|sum| &sum.rows)
            .or(self.carried.as_ref());
        // The map of one interface can't take rows of all interfaces.
        let known =
            known.filter(|_| map == self.request.map_name() && !self.maps.name_interfaces());
        let Some(mut all) = known.cloned() else {
            return rows;
        };
        if let (Some(_), Some(carried)) = (&self.sum, &self.carried) {
            all.add_of(carried.table(), carried.layout(), 0, 0);
        }
        let boot_time = monotonic_zero_ns();
        let Some((_, variable)) = self.metric.map.split_once(':') else {
            all.add(&rows, 0, boot_time);
            return all.narrowed(boot_time);
        };
        if let Some(bytes) =
            variable_of(layout, variable).filter(|bytes| bytes.end <= rows.values.len())
        {
            let value = RawTable {
                values: rows.values[bytes.clone()].to_vec(),
                ..RawTable::default()
            };
            all.add(&value, 0, boot_time);
            rows.values[bytes].copy_from_slice(&all.narrowed(boot_time).values);
        }
        rows
    }

    /// Tells whether a replacement takes over the rows of the metric.
    pub fn carries(&self) -> bool {
        self.request.on_replace == OnReplace::Carry
    }

    fn of_remains(&self, remains: &Remains) -> Option<RawTable> {
        let is_own = remains.direction == self.metric.direction.name() || self.common;
        let rows = is_own
            .then(|| remains_for(&self.metric.map, remains, &self.maps.layout))
            .flatten()?;
        Some(match self.maps.name_interfaces() {
            true => rows.with_interface(
                &self.maps.layout,
                remains.interface.as_deref().unwrap_or_default(),
            ),
            false => rows,
        })
    }

    /// Adds rows that belong to the open window and are in no map. Returns false if they do not
    /// fit.
    fn add_open(&mut self, rows: &RawTable, of: &TableLayout) -> bool {
        let mut carried = self.carried.take();
        let fits = self.carry(&mut carried, rows, of);
        self.carried = carried;
        fits
    }

    fn carry(&self, carried: &mut Option<Accumulator>, rows: &RawTable, of: &TableLayout) -> bool {
        // Packets change other maps while a journal takes their content, so this code adds the rows
        // to such a map itself.
        let popped = self.metric.layout.kind.family() == MapFamily::Fifo;
        if self.extraction != Extraction::Clear && !(self.extraction == Extraction::Drain && popped)
        {
            return true;
        }
        let rules = self.request.rules().cloned().unwrap_or_default();
        let none = || Accumulator::new(Arc::clone(&self.metric.layout), &rules).ok();
        *carried = carried.take().or_else(none);
        carried
            .as_mut()
            .is_none_or(|carried| carried.add_of(rows, of, 0, monotonic_zero_ns()))
    }

    /// Returns the layout of the rows in a window of the metric.
    pub fn stored_layout(&self) -> &Arc<TableLayout> {
        let carried = self.carried.as_ref().filter(|_| !self.carried_fits);
        let kept = self.sum.as_ref().map(|sum| &sum.rows).or(carried);
        kept.map_or(&self.metric.layout, Accumulator::layout)
    }

    /// Tells whether the sum of the metric lacks the window of `epoch`.
    pub fn awaits(&self, epoch: u64) -> bool {
        self.extraction == Extraction::Clear
            && self.sum.as_ref().is_some_and(|sum| sum.through != epoch)
    }

    /// Adds the window of `epoch` to the sum if the sum [awaits](Self::awaits) it. The map has the
    /// window's rows as well.
    pub fn sum_up(&mut self, window: &RawTable, epoch: u64, boot_time_ns: i128) {
        if !self.awaits(epoch) {
            return;
        }
        let Some(sum) = self.sum.as_mut() else { return };
        if let Some(carried) = &self.carried {
            sum.rows.add_of(carried.table(), carried.layout(), epoch, 0);
        }
        sum.rows.add(window, epoch, boot_time_ns);
        sum.used = window.len(&self.metric.layout) as u64;
        sum.drop_surplus();
        sum.drop_expired(epoch, Instant::now());
        sum.through = epoch;
    }
}

/// Returns the rows for `map`, which may be a variable of a section.
fn remains_for(map: &str, remains: &Remains, layout: &TableLayout) -> Option<RawTable> {
    if map == remains.map {
        return Some(remains.rows.clone());
    }
    let (_, name) = map
        .split_once(':')
        .filter(|(section, _)| *section == remains.map)?;
    let bytes =
        variable_of(&remains.layout, name).filter(|bytes| bytes.len() == layout.value.size)?;
    let values = remains.rows.values.get(bytes)?.to_vec();
    Some(RawTable {
        values,
        ..RawTable::default()
    })
}

/// Returns the bytes of a variable in the value of its section.
fn variable_of(section: &TableLayout, name: &str) -> Option<Range<usize>> {
    let Shape::Struct(variables) = &section.value.shape else {
        return None;
    };
    let variable = variables.iter().find(|variable| variable.name == name)?;
    let start = variable.bit_offset / 8;
    Some(start..start + variable.layout.size)
}

/// Tells whether the map is a queue or a stack, whose rows name their interface in the value.
fn is_popped(layout: &TableLayout) -> bool {
    layout.kind.family() == MapFamily::Fifo
}
