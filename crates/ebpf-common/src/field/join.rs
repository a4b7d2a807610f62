//! The rule by which two values of a field become one.

use super::kind::{LeafKind, order};
use crate::metric::MergeRule;

/// The way in which the values of a leaf join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafJoin {
    pub rule: MergeRule,
    /// True if the numbers are times, of which zero means "no time".
    pub is_time: bool,
}

impl LeafJoin {
    /// Joins the bits of an older and a newer value of a leaf, in the form of
    /// [`super::leaf::Leaf::load`]. `width` is the leaf's width in bits. A sum that does not fit
    /// becomes the nearest number that fits.
    pub fn join(self, kind: LeafKind, width: u32, old: u128, new: u128) -> u128 {
        match (old, new) {
            (0, one) | (one, 0) if self.is_time => one,
            _ => match self.rule {
                MergeRule::Or if kind != LeafKind::Float => old | new,
                MergeRule::Or | MergeRule::Last => new,
                rule => fold(rule, kind, width, [old, new].into_iter()),
            },
        }
    }
}

/// Joins the bits of any number of values of a leaf, in any order; `Last` selects the last value.
pub fn fold(
    rule: MergeRule,
    kind: LeafKind,
    width: u32,
    values: impl Iterator<Item = u128>,
) -> u128 {
    let folded = match (kind, rule) {
        (_, MergeRule::Last) => values.last(),
        (LeafKind::Float, rule) => {
            let floats = values.map(|bits| f64::from_bits(bits as u64));
            let folded = match rule {
                MergeRule::Max => floats.reduce(f64::max),
                MergeRule::Min => floats.reduce(f64::min),
                _ => Some(floats.sum()),
            };
            folded.map(|float| float.to_bits().into())
        }
        (LeafKind::Bool, MergeRule::Min) => values.min(),
        (LeafKind::Bool, _) => values.max(),
        (LeafKind::Number { .. }, MergeRule::Or) => values.reduce(|old, new| old | new),
        (LeafKind::Number { signed, .. }, MergeRule::Min) => {
            values.min_by_key(|&value| order(value, signed))
        }
        (LeafKind::Number { signed, .. }, MergeRule::Max) => {
            values.max_by_key(|&value| order(value, signed))
        }
        (LeafKind::Number { signed: true, .. }, MergeRule::Sum) => {
            let sum = values.map(u128::cast_signed).reduce(i128::saturating_add);
            let most = i128::MAX >> (128 - width);
            sum.map(|sum| sum.clamp(-most - 1, most).cast_unsigned())
        }
        (LeafKind::Number { .. }, MergeRule::Sum) => {
            let sum = values.reduce(u128::saturating_add);
            sum.map(|sum| sum.min(u128::MAX >> (128 - width)))
        }
    };
    folded.unwrap_or_default()
}

/// Tells whether a number is the largest or the smallest of its width. A sum that does not fit
/// becomes such a number.
pub fn is_at_end(kind: LeafKind, width: u32, number: u128) -> bool {
    match kind {
        LeafKind::Number { signed: true, .. } => {
            let most = i128::MAX >> (128 - width);
            matches!(number.cast_signed(), number if number == most || number == -most - 1)
        }
        LeafKind::Number { .. } => number == u128::MAX >> (128 - width),
        LeafKind::Bool | LeafKind::Float => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSIGNED: LeafKind = LeafKind::Number {
        signed: false,
        swapped: false,
    };
    const SIGNED: LeafKind = LeafKind::Number {
        signed: true,
        swapped: false,
    };

    #[test]
    fn a_sum_that_does_not_fit_stays_at_the_nearest_number() {
        let sum = LeafJoin {
            rule: MergeRule::Sum,
            is_time: false,
        };
        assert_eq!(sum.join(UNSIGNED, 64, u64::MAX.into(), 2), u64::MAX.into());
        assert_eq!(sum.join(UNSIGNED, 8, 200, 100), 255);
        assert_eq!(sum.join(UNSIGNED, 128, u128::MAX, 1), u128::MAX);
        let least = i128::from(i64::MIN).cast_unsigned();
        assert_eq!(
            sum.join(SIGNED, 64, least, (-1_i128).cast_unsigned()),
            least
        );
        assert_eq!(
            sum.join(SIGNED, 64, i64::MAX.cast_unsigned().into(), 1),
            i64::MAX.cast_unsigned().into()
        );
    }

    #[test]
    fn zero_is_no_time() {
        for (rule, expected) in [
            (MergeRule::Min, 3),
            (MergeRule::Max, 5),
            (MergeRule::Last, 3),
        ] {
            let time = LeafJoin {
                rule,
                is_time: true,
            };
            assert_eq!(time.join(UNSIGNED, 64, 5, 3), expected, "{rule:?}");
            assert_eq!(
                (time.join(UNSIGNED, 64, 0, 3), time.join(UNSIGNED, 64, 5, 0)),
                (3, 5),
                "{rule:?}"
            );
        }
    }
}
