//! The numbers of a chart: the largest keys, with their sums and the sum of all others at each
//! point.

use serde_json::Number as JsonNumber;
use twinprobe_ebpf_common::MergeRule;
use twinprobe_exporter::Number;

use crate::engine::series::compact::CompactNumbers;
use crate::engine::series::walk::Mode;

/// The numbers of keys, or of many keys together, at each point.
#[derive(Clone, Debug)]
pub struct Values {
    mode: Mode,
    rule: MergeRule,
    /// The number at each point. The outer `None` means that the point has no data, and the inner
    /// `None` that the key was removed.
    points: Vec<Option<Option<Number>>>,
}

/// The total of each key.
#[derive(Debug, Default)]
pub struct Totals(CompactNumbers);

impl Mode {
    /// Returns the rule by which numbers at the same point join.
    const fn within(self) -> MergeRule {
        match self {
            Self::Growth { .. } => MergeRule::Sum,
            Self::Windows(rule) => rule,
            Self::State => MergeRule::Last,
        }
    }
}

impl Totals {
    pub fn add(&mut self, mode: Mode, id: u32, number: Option<Number>) {
        let joined = join(self.0.get(id), mode.within(), number);
        self.0.set(id, joined);
    }

    /// Adds a number to each of many keys.
    pub fn add_many(&mut self, mode: Mode, ids: &[u32], numbers: &[u64]) {
        if let Some(most) = ids.iter().max() {
            self.0.grow(*most as usize + 1);
        }
        let adds = mode.within() == MergeRule::Sum;
        for (&id, &number) in ids.iter().zip(numbers) {
            if !(adds && self.0.add_word(id, number)) {
                self.add(mode, id, Some(Number::Integer(number.into())));
            }
        }
    }

    /// Joins the sums of later windows, in which the keys have other numbers.
    pub fn join(&mut self, mode: Mode, later: &Self, ids: &[u32]) {
        for (own, &id) in (0..).zip(ids).filter(|(own, _)| later.0.has_met(*own)) {
            self.add(mode, id, later.get(own));
        }
    }

    pub fn get(&self, id: u32) -> Option<Number> {
        self.0.get(id)
    }

    /// Returns the keys with the largest numbers, the largest first, and the number of all other
    /// keys.
    pub fn largest(&self, top: usize) -> (Vec<u32>, u64) {
        let size = |id: &u32| self.get(*id).map_or(f64::NEG_INFINITY, Number::as_f64);
        let mut ids: Vec<u32> = (0..self.0.len() as u32)
            .filter(|id| self.get(*id).is_some())
            .collect();
        let larger = |a: &u32, b: &u32| size(b).total_cmp(&size(a)).then(a.cmp(b));
        if ids.len() > top {
            ids.select_nth_unstable_by(top, larger);
        }
        let others = ids.len().saturating_sub(top) as u64;
        ids.truncate(top);
        ids.sort_by(larger);
        (ids, others)
    }
}

fn join(old: Option<Number>, rule: MergeRule, new: Option<Number>) -> Option<Number> {
    match (old, new) {
        (Some(old), Some(new)) => Some(old.join(rule, new)),
        (old, None) if rule != MergeRule::Last => old,
        (_, new) => new,
    }
}

impl Values {
    /// Makes the numbers of one key, which has none yet.
    pub fn of_key(mode: Mode, points: usize) -> Self {
        Self {
            mode,
            rule: mode.within(),
            points: vec![None; points],
        }
    }

    /// Makes the numbers of many keys, which join by `rule`.
    pub fn of_many(mode: Mode, rule: MergeRule, points: usize) -> Self {
        let rule = if mode == Mode::State {
            rule
        } else {
            mode.within()
        };
        Self {
            mode,
            rule,
            points: vec![None; points],
        }
    }

    pub fn add(&mut self, point: usize, number: Option<Number>) {
        let slot = &mut self.points[point];
        *slot = Some(join(slot.flatten(), self.rule, number));
    }

    /// Joins later numbers.
    pub fn join(&mut self, later: &Self) {
        for (slot, later) in self.points.iter_mut().zip(&later.points) {
            if let Some(number) = later {
                *slot = Some(join(slot.flatten(), self.rule, *number));
            }
        }
    }

    /// Tells whether a number for many keys together would have no meaning: the newest value of
    /// many keys, or the sum of their present values.
    pub fn means_nothing(&self) -> bool {
        let adds_states = self.mode == Mode::State && self.rule == MergeRule::Sum;
        self.rule == MergeRule::Last || adds_states
    }

    /// Returns the number at each point. `has_windows` tells for each point whether it has data.
    pub fn finish(self, has_windows: &[bool]) -> Vec<Option<JsonNumber>> {
        let adds = self.mode != Mode::State && self.rule == MergeRule::Sum;
        let mut state = None;
        let mut values = Vec::with_capacity(self.points.len());
        for (point, has_windows) in self.points.into_iter().zip(has_windows) {
            if self.mode == Mode::State {
                state = match point {
                    Some(number) if self.rule == MergeRule::Last => number,
                    Some(number) => join(state, self.rule, number),
                    None => state,
                };
            }
            let number = if self.mode == Mode::State {
                state
            } else {
                point.flatten()
            };
            let number = number.or_else(|| adds.then_some(Number::ZERO));
            values.push(number.filter(|_| *has_windows).and_then(json));
        }
        values
    }
}

/// Returns the number in JSON; `None` for a float that JSON can't express. An integer of more than
/// 64 bits becomes a float.
pub fn json(number: Number) -> Option<JsonNumber> {
    match number {
        Number::Float(number) => JsonNumber::from_f64(number),
        Number::Integer(number) => match (u64::try_from(number), i64::try_from(number)) {
            (Ok(number), _) => Some(number.into()),
            (_, Ok(number)) => Some(number.into()),
            _ => JsonNumber::from_f64(number as f64),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn some(number: i128) -> Option<Number> {
        Some(Number::Integer(number))
    }

    fn finished(values: Values, has_windows: &[bool]) -> String {
        serde_json::to_string(&values.finish(has_windows)).unwrap()
    }

    #[test]
    fn what_grows_adds_up_and_what_is_stays() {
        let has_windows = [true, true, false, true];
        let mut growth = Values::of_key(Mode::Growth { falls: false }, 4);
        [(0, 5), (0, 6), (3, 1)]
            .iter()
            .for_each(|(point, number)| growth.add(*point, some(*number)));
        assert_eq!(finished(growth, &has_windows), "[11,0,null,1]");
        let mut state = Values::of_key(Mode::State, 4);
        state.add(0, some(5));
        state.add(0, some(7));
        state.add(3, None);
        assert_eq!(finished(state, &has_windows), "[7,7,null,null]");
        let mut most = Values::of_key(Mode::Windows(MergeRule::Max), 4);
        [(0, 5), (0, 3)]
            .iter()
            .for_each(|(point, number)| most.add(*point, some(*number)));
        assert_eq!(finished(most, &has_windows), "[5,null,null,null]");
    }

    #[test]
    fn the_largest_keys_come_first() {
        let mut totals = Totals::default();
        for (id, number) in [(0, 3), (1, 9), (2, 3), (4, 5), (0, 1)] {
            totals.add(Mode::Growth { falls: false }, id, some(number));
        }
        assert_eq!(totals.largest(2), (vec![1, 4], 2));
        assert_eq!(totals.largest(9), (vec![1, 4, 0, 2], 0));
        assert_eq!((totals.get(0), totals.get(3)), (some(4), None));
    }

    #[test]
    fn numbers_that_json_does_not_have_are_left_out() {
        assert_eq!(json(Number::Float(f64::NAN)), None);
        assert_eq!(
            json(Number::Integer(1 << 100)).unwrap().as_f64(),
            Some(f64::from(2).powi(100))
        );
        assert_eq!(json(Number::Integer(-3)).unwrap().as_i64(), Some(-3));
    }
}
