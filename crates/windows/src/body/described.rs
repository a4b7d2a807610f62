//! The heads of windows that hold the changes in their sums. Such a head describes only the metrics
//! that the window with whole sums at the begin of its chain does not describe. The descriptions
//! are larger than the rows of many windows.

use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_ebpf_common::{MetricHead, Temporality};

use crate::body::head::{DescribedMetric, SumChanges, WindowHead};

/// The most heads of a probe's windows that are kept in memory. Charts read several chains at the
/// same time.
const MOST: usize = 4;

/// The heads of windows with whole sums, by the numbers of their bodies.
#[derive(Debug, Default)]
pub struct WholeHeads(Mutex<Vec<(i64, Arc<WindowHead>)>>);

impl WholeHeads {
    pub fn get(&self, id: i64) -> Option<Arc<WindowHead>> {
        self.0
            .lock()
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, head)| Arc::clone(head))
    }

    pub fn insert(&self, id: i64, head: Arc<WindowHead>) {
        let mut known = self.0.lock();
        known.retain(|(known, _)| *known != id);
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push((id, head));
    }
}

impl WindowHead {
    /// Tells whether later windows can hold the changes in the sums of this window.
    pub fn has_whole_sums(&self) -> bool {
        self.changes.is_none()
            && self
                .all()
                .any(|metric| metric.temporality == Temporality::Cumulative)
    }

    /// Returns this head without the metrics that `whole` describes; `None` if this head has no
    /// changes of sums, or if `whole` describes no metric in the same place.
    pub fn without_described(&self, whole: &Self) -> Option<Self> {
        let changes = self.changes.as_ref()?;
        let shown = self.metrics.len();
        if (shown, self.hidden.len()) != (whole.metrics.len(), whole.hidden.len()) {
            return None;
        }
        let (mut alike, mut described, mut own) =
            (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        for (place, (metric, before)) in self.all().zip(whole.all()).enumerate() {
            let (dropped, completeness) = (metric.dropped, metric.completeness);
            if !metric.is_alike(before) {
                own[usize::from(place >= shown)].push(metric.clone());
            } else if (dropped, completeness) == (before.dropped, before.completeness) {
                alike.push(place);
            } else {
                described.push(DescribedMetric {
                    place,
                    dropped,
                    completeness,
                });
            }
        }
        if alike.is_empty() && described.is_empty() {
            return None;
        }
        let [metrics, hidden] = own;
        Some(Self {
            probe: self.probe.clone(),
            origin: self.origin.clone(),
            interfaces: self.interfaces.clone(),
            approximate: self.approximate.clone(),
            window: self.window.clone(),
            format: self.format,
            context: self.context.clone(),
            skipped_before: self.skipped_before,
            closed_by: self.closed_by,
            metrics,
            hidden,
            changes: Some(SumChanges {
                alike,
                described,
                ..changes.clone()
            }),
        })
    }

    /// Returns the whole head: the opposite of [`Self::without_described`]. `None` if `whole` does
    /// not fit.
    pub fn with_described(mut self, whole: &Self) -> Option<Self> {
        let shown = whole.metrics.len();
        let changes = self.changes.as_mut()?;
        let (alike, described) = (
            std::mem::take(&mut changes.alike),
            std::mem::take(&mut changes.described),
        );
        let own = [
            std::mem::take(&mut self.metrics),
            std::mem::take(&mut self.hidden),
        ];
        let [mut own_shown, mut own_hidden] = own.map(Vec::into_iter);
        let (mut alike, mut described) = (
            alike.into_iter().peekable(),
            described.into_iter().peekable(),
        );
        for (place, metric) in whole.all().enumerate() {
            let metric = match described.next_if(|described| described.place == place) {
                Some(DescribedMetric {
                    dropped,
                    completeness,
                    ..
                }) => MetricHead {
                    dropped,
                    completeness,
                    ..metric.clone()
                },
                None if alike.next_if_eq(&place).is_some() => metric.clone(),
                None if place < shown => own_shown.next()?,
                None => own_hidden.next()?,
            };
            if place < shown {
                self.metrics.push(metric);
            } else {
                self.hidden.push(metric);
            }
        }
        let is_own_left = own_shown.next().is_some() || own_hidden.next().is_some();
        let is_left = is_own_left || alike.next().is_some() || described.next().is_some();
        (!is_left).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::head::ClosedBy;
    use crate::windows::tests;

    fn head(help: &str) -> WindowHead {
        let mut head = tests::head(7, ClosedBy::Request, 0);
        head.hidden = head
            .metrics
            .iter()
            .map(|metric| MetricHead {
                help: help.into(),
                ..metric.clone()
            })
            .collect();
        head
    }

    fn with_changes(help: &str) -> WindowHead {
        WindowHead {
            changes: Some(SumChanges::new(7, vec![0])),
            ..head(help)
        }
    }

    #[test]
    fn a_head_gets_its_descriptions_back() {
        let whole = head("as before");
        for (shown, hidden, own) in [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 2), (2, 2, 4)] {
            let mut later = with_changes("as before");
            later.metrics[..shown]
                .iter_mut()
                .for_each(|metric| metric.agg = None);
            later.hidden[..hidden]
                .iter_mut()
                .for_each(|metric| metric.map.push('2'));
            later.hidden[1].dropped = 5;
            later.metrics[1].completeness.max_entries = Some(9);
            let Some(short) = later.without_described(&whole) else {
                assert_eq!(own, 4, "all metrics differ");
                continue;
            };
            assert_eq!(short.metrics.len() + short.hidden.len(), own);
            assert_eq!(short.with_described(&whole), Some(later));
        }
    }

    #[test]
    fn a_head_of_other_metrics_is_refused() {
        let whole = head("as before");
        assert_eq!(whole.without_described(&whole), None, "it has whole sums");
        let short = with_changes("as before").without_described(&whole).unwrap();
        let fewer = WindowHead {
            hidden: Vec::new(),
            ..whole.clone()
        };
        assert_eq!(with_changes("as before").without_described(&fewer), None);
        assert_eq!(short.clone().with_described(&fewer), None);
        let mut more = whole.clone();
        more.hidden.push(more.hidden[0].clone());
        assert_eq!(short.clone().with_described(&more), None);
        let mut surplus = short;
        surplus.metrics.push(whole.metrics[0].clone());
        assert_eq!(surplus.with_described(&whole), None);
    }
}
