//! The sums for each key of a chart, and for all other keys, at each point.

use std::collections::HashMap;

use twinprobe_ebpf_common::MergeRule;
use twinprobe_exporter::Number;

use crate::engine::series::kept::{KeptNumbers, WindowNumbers};
use crate::engine::series::values::{Totals, Values};
use crate::engine::series::walk::{ChartSink, Mode};

/// The mark of a key that the chart does not show, so that it belongs to the sum of all others.
pub const OTHER: u32 = u32::MAX;

/// The numbers of the keys of a chart, and of all others together.
#[derive(Debug)]
pub struct Sums {
    mode: Mode,
    /// The place of each key in the chart, or [`OTHER`].
    places: Vec<u32>,
    pub values: Vec<Values>,
    pub others: Values,
    /// The sum of all other keys, stored under key 0.
    pub total: Totals,
}

/// A receiver that adds all numbers at the same point.
pub struct PointSums<'a> {
    pub sums: &'a mut Sums,
    /// The index of the point; `None` if the numbers do not count.
    pub point: Option<usize>,
}

/// The rows of the chart's keys, for each order of keys.
type KeyRows = HashMap<(usize, usize), Vec<(usize, u32)>>;

impl Sums {
    pub fn new(mode: Mode, rule: MergeRule, points: usize, places: Vec<u32>, keys: usize) -> Self {
        let values = vec![Values::of_key(mode, points); keys];
        let others = Values::of_many(mode, rule, points);
        Self {
            mode,
            places,
            values,
            others,
            total: Totals::default(),
        }
    }

    pub fn add(&mut self, point: usize, id: u32, number: Option<Number>) {
        // A window that was closed meanwhile may have further keys.
        match self.places.get(id as usize) {
            Some(&place) if place != OTHER => self.values[place as usize].add(point, number),
            _ => {
                self.others.add(point, number);
                self.total.add(self.mode, 0, number);
            }
        }
    }

    /// Adds the numbers that are stored in memory.
    pub fn add_kept(&mut self, kept: &KeptNumbers) {
        let mut rows = KeyRows::new();
        for window in kept.windows() {
            match window.small().filter(|_| adds(self.mode)) {
                Some((numbers, sum)) => self.add_small(&window, numbers, sum, &mut rows),
                None => window
                    .all()
                    .for_each(|(id, number)| self.add(window.point, id, number)),
            }
        }
    }

    /// Adds the small numbers of a window in which numbers add up. The chart shows all other keys
    /// as one sum, which is the sum of the window minus the numbers of the chart's keys.
    fn add_small(
        &mut self,
        window: &WindowNumbers<'_>,
        numbers: &[u32],
        mut sum: u64,
        rows: &mut KeyRows,
    ) {
        let places = &self.places;
        let find = || {
            let place = |(row, id): (usize, &u32)| Some((row, *places.get(*id as usize)?));
            window
                .ids()
                .iter()
                .enumerate()
                .filter_map(place)
                .filter(|(_, place)| *place != OTHER)
                .collect()
        };
        let rows = rows.entry(window.order).or_insert_with(find);
        for &(row, place) in &*rows {
            let number = u64::from(numbers[row]);
            sum -= number;
            self.values[place as usize].add(window.point, Some(Number::Integer(number.into())));
        }
        if rows.len() < numbers.len() {
            let sum = Some(Number::Integer(sum.into()));
            self.others.add(window.point, sum);
            self.total.add(self.mode, 0, sum);
        }
    }

    /// Joins the sums of later windows.
    pub fn join(&mut self, later: &Self) {
        self.values
            .iter_mut()
            .zip(&later.values)
            .for_each(|(own, later)| own.join(later));
        self.others.join(&later.others);
        self.total.join(self.mode, &later.total, &[0]);
    }
}

impl ChartSink for PointSums<'_> {
    fn one(&mut self, id: u32, number: Option<Number>) {
        self.point
            .into_iter()
            .for_each(|point| self.sums.add(point, id, number));
    }

    fn many(&mut self, ids: &[u32], numbers: &[u64]) {
        ids.iter()
            .zip(numbers)
            .for_each(|(&id, &number)| self.one(id, Some(Number::Integer(number.into()))));
    }
}

/// Tells whether numbers at the same point add up.
const fn adds(mode: Mode) -> bool {
    matches!(mode, Mode::Growth { .. } | Mode::Windows(MergeRule::Sum))
}
