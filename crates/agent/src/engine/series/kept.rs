//! The numbers of windows, stored in little memory, so that a chart reads each window once.

use std::ops::Range;

use twinprobe_exporter::Number;

/// The most bytes that are kept for a chart. They suffice for 360 windows with 30,000 keys each, in
/// the same order. Two charts may be made at the same time, and a daemon in a container has 256 MiB
/// by default.
pub const MOST_KEPT: usize = 48 << 20;
/// Takes the place of a number that does not fit into 32 bits. That number is in the list `wide`.
const WIDE: u32 = u32::MAX;

/// The numbers of windows.
#[derive(Debug)]
pub struct KeptNumbers {
    /// The most bytes that may be kept.
    most: usize,
    ids: Vec<u32>,
    numbers: Vec<u32>,
    /// The numbers that do not fit into small integers: large ones, negative ones and floats. Also
    /// the marks of removed keys.
    wide: Vec<Option<Number>>,
    windows: Vec<KeptWindow>,
    /// The place where the numbers of the open window begin.
    open: (usize, usize, usize),
}

/// The numbers of one window.
#[derive(Clone, Debug)]
struct KeptWindow {
    point: usize,
    ids: Range<usize>,
    numbers: Range<usize>,
    wide: Range<usize>,
    /// The sum of the small numbers of the window.
    sum: u64,
}

/// The numbers of a window that are kept.
#[derive(Clone, Copy, Debug)]
pub struct WindowNumbers<'a> {
    pub point: usize,
    /// The list of keys. Windows with the same keys in the same order share it.
    pub order: (usize, usize),
    sum: u64,
    ids: &'a [u32],
    numbers: &'a [u32],
    wide: &'a [Option<Number>],
}

impl KeptNumbers {
    pub fn new(most: usize) -> Self {
        let (ids, numbers, wide, windows, open) = Default::default();
        Self {
            most,
            ids,
            numbers,
            wide,
            windows,
            open,
        }
    }

    /// Adds a number for each of many keys.
    pub fn add_many(&mut self, ids: &[u32], numbers: &[u64]) {
        self.ids.extend_from_slice(ids);
        self.numbers.reserve(ids.len());
        for &number in &numbers[..ids.len()] {
            let small = u32::try_from(number).unwrap_or(WIDE);
            if small == WIDE {
                self.wide.push(Some(Number::Integer(number.into())));
            }
            self.numbers.push(small);
        }
    }

    pub fn add(&mut self, id: u32, number: Option<Number>) {
        let small = match number {
            Some(Number::Integer(number)) => {
                u32::try_from(number).ok().filter(|number| *number != WIDE)
            }
            _ => None,
        };
        if small.is_none() {
            self.wide.push(number);
        }
        self.ids.push(id);
        self.numbers.push(small.unwrap_or(WIDE));
    }

    /// Ends the window. Returns false if the window was too large.
    pub fn end(&mut self, point: usize) -> bool {
        let (ids, numbers, wide) = self.open;
        let mut own = ids..self.ids.len();
        // Windows often have the same keys in the order of the last window or of the one before.
        let alike = |known: &&KeptWindow| self.ids[known.ids.clone()] == self.ids[own.clone()];
        if let Some(known) = self.windows.iter().rev().take(2).find(alike) {
            own = known.ids.clone();
            self.ids.truncate(ids);
        }
        let (numbers, wide) = (numbers..self.numbers.len(), wide..self.wide.len());
        let sum = self.numbers[numbers.clone()]
            .iter()
            .map(|number| u64::from(*number))
            .sum();
        self.windows.push(KeptWindow {
            point,
            ids: own,
            numbers,
            wide,
            sum,
        });
        self.open = (self.ids.len(), self.numbers.len(), self.wide.len());
        size_of_val(&*self.ids) + size_of_val(&*self.numbers) + size_of_val(&*self.wide)
            <= self.most
    }

    pub fn windows(&self) -> impl Iterator<Item = WindowNumbers<'_>> {
        self.windows.iter().map(|window| WindowNumbers {
            point: window.point,
            order: (window.ids.start, window.ids.end),
            sum: window.sum,
            ids: &self.ids[window.ids.clone()],
            numbers: &self.numbers[window.numbers.clone()],
            wide: &self.wide[window.wide.clone()],
        })
    }
}

impl WindowNumbers<'_> {
    /// The keys.
    pub const fn ids(&self) -> &[u32] {
        self.ids
    }

    /// Returns the numbers of the keys and their sum, if all of them are small integers.
    pub fn small(&self) -> Option<(&[u32], u64)> {
        self.wide.is_empty().then_some((self.numbers, self.sum))
    }

    /// Returns the keys and their numbers. The number of a removed key is `None`.
    pub fn all(&self) -> impl Iterator<Item = (u32, Option<Number>)> {
        let mut wide = self.wide.iter().copied();
        self.ids
            .iter()
            .zip(self.numbers)
            .map(move |(&id, &number)| match number {
                WIDE => (id, wide.next().flatten()),
                small => (id, Some(Number::Integer(small.into()))),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were() {
        let integer = |number| Some(Number::Integer(number));
        let windows = [
            vec![(0, integer(3)), (1, integer(0))],
            vec![
                (1, integer(-1)),
                (0, None),
                (2, integer(i128::from(u32::MAX))),
            ],
            vec![(0, integer(7)), (1, Some(Number::Float(0.5)))],
            vec![],
        ];
        let mut kept = KeptNumbers::new(MOST_KEPT);
        for (point, window) in windows.iter().enumerate() {
            window
                .iter()
                .for_each(|(id, number)| kept.add(*id, *number));
            assert!(kept.end(point));
        }
        let back: Vec<Vec<_>> = kept
            .windows()
            .map(|window| window.all().collect())
            .collect();
        assert_eq!(back, windows);
        let small: Vec<Option<u64>> = kept
            .windows()
            .map(|window| Some(window.small()?.1))
            .collect();
        assert_eq!(small, [Some(3), None, None, Some(0)]);
        assert_eq!(kept.ids.len(), 5, "the order of the keys is kept once");
    }

    #[test]
    fn many_numbers_are_those_that_come_one_by_one() {
        let numbers = [0, 7, u64::from(u32::MAX) - 1, u32::MAX.into(), u64::MAX];
        let (mut one, mut many) = (KeptNumbers::new(MOST_KEPT), KeptNumbers::new(MOST_KEPT));
        many.add_many(&[4, 3, 2, 1, 0], &numbers);
        numbers
            .iter()
            .zip([4, 3, 2, 1, 0])
            .for_each(|(number, id)| one.add(id, Some(Number::Integer((*number).into()))));
        assert!(one.end(0) && many.end(0));
        let all = |kept: &KeptNumbers| {
            kept.windows()
                .flat_map(|window| window.all().collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(all(&one), all(&many));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut kept = KeptNumbers::new(MOST_KEPT);
        (0..MOST_KEPT as u32 / 8).for_each(|id| kept.add(id, Some(Number::ZERO)));
        assert!(kept.end(0));
        kept.add(0, Some(Number::ZERO));
        assert!(!kept.end(0));
    }
}
