//! The numbers of a chart: which keys are the largest, and what they and all others come to at each point.

use serde_json::Number as JsonNumber;
use twinprobe_ebpf_common::MergeRule;
use twinprobe_exporter::Number;

use crate::engine::series::walk::Mode;

/// The numbers of keys, or of many keys together, at each point.
#[derive(Clone, Debug)]
pub struct Values {
    mode: Mode,
    rule: MergeRule,
    /// The outer `None` says that nothing has come at the point, the inner one that the key is gone.
    points: Vec<Option<Option<Number>>>,
}

/// What each key comes to.
#[derive(Debug, Default)]
pub struct Totals(Vec<Option<Number>>);

impl Mode {
    /// The rule by which what comes at one point joins.
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
        let id = id as usize;
        if self.0.len() <= id {
            self.0.resize(id + 1, None);
        }
        self.0[id] = join(self.0[id], mode.within(), number);
    }

    pub fn get(&self, id: u32) -> Option<Number> {
        self.0.get(id as usize).copied().flatten()
    }

    /// Returns the keys with the largest numbers, the largest first, and how many others there are.
    pub fn largest(&self, top: usize) -> (Vec<u32>, u64) {
        let size = |id: &u32| self.get(*id).map_or(f64::NEG_INFINITY, Number::as_f64);
        let mut ids: Vec<u32> = (0..self.0.len() as u32).filter(|id| self.get(*id).is_some()).collect();
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
    /// The numbers of one key.
    pub fn of_key(mode: Mode, points: usize) -> Self {
        Self { mode, rule: mode.within(), points: vec![None; points] }
    }

    /// The numbers of many keys, which join by `rule`.
    pub fn of_many(mode: Mode, rule: MergeRule, points: usize) -> Self {
        let rule = if mode == Mode::State { rule } else { mode.within() };
        Self { mode, rule, points: vec![None; points] }
    }

    pub fn add(&mut self, point: usize, number: Option<Number>) {
        let slot = &mut self.points[point];
        *slot = Some(join(slot.flatten(), self.rule, number));
    }

    /// Tells whether the newest of many keys, or the sum of what they are now, would say nothing about them.
    pub fn means_nothing(&self) -> bool {
        let adds_states = self.mode == Mode::State && self.rule == MergeRule::Sum;
        self.rule == MergeRule::Last || adds_states
    }

    /// Returns a number for each point. `has_windows` says whether something is known of the point.
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
            let number = if self.mode == Mode::State { state } else { point.flatten() };
            let number = number.or_else(|| adds.then_some(Number::ZERO));
            values.push(number.filter(|_| *has_windows).and_then(json));
        }
        values
    }
}

/// Returns the number in JSON; `None` for a float that JSON does not have. An integer of more than 64 bits becomes a float.
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
        [(0, 5), (0, 6), (3, 1)].iter().for_each(|(point, number)| growth.add(*point, some(*number)));
        assert_eq!(finished(growth, &has_windows), "[11,0,null,1]");
        let mut state = Values::of_key(Mode::State, 4);
        state.add(0, some(5));
        state.add(0, some(7));
        state.add(3, None);
        assert_eq!(finished(state, &has_windows), "[7,7,null,null]");
        let mut most = Values::of_key(Mode::Windows(MergeRule::Max), 4);
        [(0, 5), (0, 3)].iter().for_each(|(point, number)| most.add(*point, some(*number)));
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
        assert_eq!(json(Number::Integer(1 << 100)).unwrap().as_f64(), Some(f64::from(2).powi(100)));
        assert_eq!(json(Number::Integer(-3)).unwrap().as_i64(), Some(-3));
    }
}
