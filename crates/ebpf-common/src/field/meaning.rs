//! The meaning of a number in a value. The rendering of its field decides, or else its name: C uses
//! one type for counts, ports, flags and maxima.

use super::join::LeafJoin;
use super::plan::Scalar;
use crate::metric::{MergeRule, MergeRules};

/// The meaning of a number. It decides whether and how arithmetic applies to the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A quantity, which can be added and compared.
    Quantity,
    /// The smallest or the largest of many quantities, by this rule.
    Extreme(MergeRule),
    /// A set of flags.
    Flags,
    /// A point in time, of which zero means "no time".
    Time {
        /// True if the join of two times is the older one, not the newer one.
        first: bool,
        /// True if the time is counted from the boot of the machine.
        since_boot: bool,
    },
    /// A number that was copied from a header or is a name, according to its byte order or the name
    /// of its field. Such numbers are not added.
    Copied,
    /// A name of something (an enum, an interface). Arithmetic applies to it only if the
    /// configuration asks for that.
    Identity,
}

/// The words in the names of fields that mean a smallest or largest number.
const SMALLEST: [&str; 7] = [
    "min", "minimum", "least", "lowest", "smallest", "shortest", "fewest",
];
const LARGEST: [&str; 8] = [
    "max", "maximum", "most", "highest", "largest", "longest", "biggest", "peak",
];
/// The last words in the names of counters.
const COUNTS: [&str; 5] = ["total", "count", "counts", "counter", "hits"];
/// The last words in the names of fields of at most 32 bits that contain a name or a number from a
/// header.
const NAMES: [&str; 24] = [
    "port",
    "sport",
    "dport",
    "ttl",
    "tos",
    "dscp",
    "ecn",
    "mtu",
    "mss",
    "id",
    "ifindex",
    "snmp",
    "as",
    "asn",
    "proto",
    "protocol",
    "version",
    "state",
    "hoplimit",
    "prefixlen",
    "type",
    "code",
    "cpu",
    "priority",
];
/// The same words for fields of at most 16 bits: wider fields with such a name count packets.
const SHORT_NAMES: [&str; 6] = ["vlan", "tci", "vni", "mark", "hops", "window"];
/// The words in the names of times, besides `first` and `last`.
const TIMES: [&str; 11] = [
    "seen",
    "ns",
    "us",
    "ms",
    "nsec",
    "time",
    "ts",
    "timestamp",
    "switched",
    "at",
    "packet",
];

impl Meaning {
    /// Returns the meaning of a number. `kind` is `None` for a float, `path` has the names of the
    /// members on the way to the number, `width` is its number of bits; a number that is widened
    /// for sums keeps its meaning. Without a tag in the source, `is_item` tells that the number is
    /// an item of an array. The name of the array does not describe its items.
    pub fn of(kind: Option<&Scalar>, path: &str, width: u32, is_item: bool) -> Self {
        let name = path
            .rsplit_once('.')
            .map_or(path, |(_, name)| name)
            .to_ascii_lowercase();
        let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
        match kind {
            Some(Scalar::Ktime) => Self::Time {
                first: is_first(&words),
                since_boot: true,
            },
            Some(Scalar::Time) => Self::Time {
                first: is_first(&words),
                since_boot: false,
            },
            Some(Scalar::Flags(_)) => Self::Flags,
            Some(Scalar::Hex) if is_flags(&words) => Self::Flags,
            Some(Scalar::Enum { .. } | Scalar::Hex | Scalar::Ifindex) => Self::Identity,
            // Counters are in the machine's byte order.
            Some(Scalar::Swapped) => Self::Copied,
            Some(Scalar::Bool) => Self::Quantity,
            Some(Scalar::Unsigned | Scalar::Signed | Scalar::Decimal { .. }) | None => {
                named(&words, kind.is_some(), width, is_item)
            }
        }
    }
}

fn is_first(words: &[&str]) -> bool {
    const FIRST: [&str; 8] = [
        "first", "start", "started", "begin", "begun", "created", "since", "oldest",
    ];
    words
        .iter()
        .any(|word| FIRST.contains(word) || SMALLEST.contains(word))
}

fn is_flags(words: &[&str]) -> bool {
    words
        .last()
        .is_some_and(|word| matches!(*word, "flags" | "bitmap" | "bitmask"))
}

/// Returns the meaning that the words of a name give to a number.
fn named(words: &[&str], is_integer: bool, width: u32, is_item: bool) -> Meaning {
    let [first, last] = [words.first(), words.last()].map(|word| word.copied().unwrap_or_default());
    if COUNTS.contains(&last) {
        return Meaning::Quantity;
    }
    if SMALLEST.contains(&first) || SMALLEST.contains(&last) {
        return Meaning::Extreme(MergeRule::Min);
    }
    if LARGEST.contains(&first) || LARGEST.contains(&last) {
        return Meaning::Extreme(MergeRule::Max);
    }
    if is_item || !is_integer {
        return Meaning::Quantity;
    }
    if is_flags(words) {
        return Meaning::Flags;
    }
    if width <= 32 && NAMES.contains(&last) || width <= 16 && SHORT_NAMES.contains(&last) {
        return Meaning::Copied;
    }
    let is_end = matches!(first, "first" | "last");
    if is_end && words[1..].iter().all(|word| TIMES.contains(word)) || last == "timestamp" {
        return Meaning::Time {
            first: first == "first",
            since_boot: false,
        };
    }
    Meaning::Quantity
}

impl MergeRules {
    /// Returns how values of the leaf at `path` join: by the rule for its field, or for the nearest
    /// struct around it. If no rule names the leaf, then the metric's rule applies to a quantity,
    /// and the rule of its meaning to any other number. If the whole value is a number that only
    /// names something, the metric's rule applies to it too, except `sum`: names and times have no
    /// sum.
    pub fn join(&self, path: &str, meaning: Meaning) -> LeafJoin {
        let named = self.named(path);
        let own = match meaning {
            Meaning::Quantity => None,
            Meaning::Extreme(rule) => Some(rule),
            Meaning::Flags => Some(MergeRule::Or),
            Meaning::Time { first: true, .. } => Some(MergeRule::Min),
            Meaning::Time { first: false, .. } => Some(MergeRule::Max),
            Meaning::Copied | Meaning::Identity => Some(MergeRule::Last),
        };
        let is_time = matches!(meaning, Meaning::Time { .. });
        let rule = match (named, own, self.default) {
            (Some(MergeRule::Sum | MergeRule::Or), Some(own), _) if is_time => own,
            (Some(rule), ..) => rule,
            (None, None, rule) => rule,
            (None, Some(own), MergeRule::Sum) => own,
            (None, Some(own), _) if meaning == Meaning::Identity && !path.is_empty() => own,
            (None, Some(own), MergeRule::Or) if is_time => own,
            (None, Some(own), MergeRule::Max | MergeRule::Min) if meaning == Meaning::Flags => own,
            (None, Some(_), rule) => rule,
        };
        LeafJoin { rule, is_time }
    }

    /// Returns the rule that names the field at `path`, or the nearest struct around it.
    pub fn named(&self, path: &str) -> Option<MergeRule> {
        let mut prefix = Some(path);
        while let Some(path) = prefix {
            if let Some(rule) = self.fields.get(path) {
                return Some(*rule);
            }
            prefix = path.rsplit_once('.').map(|(parent, _)| parent);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_plain_integers_mean() {
        let meaning = |name: &str, width| Meaning::of(Some(&Scalar::Unsigned), name, width, false);
        let time = |first| Meaning::Time {
            first,
            since_boot: false,
        };
        for (name, width, expected) in [
            ("packets", 64, Meaning::Quantity),
            ("IN_BYTES", 64, Meaning::Quantity),
            ("tcp.min_length", 32, Meaning::Extreme(MergeRule::Min)),
            ("nanoseconds_max", 64, Meaning::Extreme(MergeRule::Max)),
            ("most", 32, Meaning::Extreme(MergeRule::Max)),
            ("max_reached_total", 64, Meaning::Quantity),
            ("TCP_FLAGS", 32, Meaning::Flags),
            ("flags_total", 64, Meaning::Quantity),
            ("L4_SRC_PORT", 16, Meaning::Copied),
            ("ports", 32, Meaning::Quantity),
            ("port", 64, Meaning::Quantity),
            ("vlan", 16, Meaning::Copied),
            ("vlan", 32, Meaning::Quantity),
            ("INPUT_SNMP", 32, Meaning::Copied),
            ("first", 64, time(true)),
            ("last_seen", 64, time(false)),
            ("last_bytes", 64, Meaning::Quantity),
            ("", 64, Meaning::Quantity),
        ] {
            assert_eq!(meaning(name, width), expected, "{name}");
        }
        let ktime = |name| Meaning::of(Some(&Scalar::Ktime), name, 64, true);
        assert_eq!(
            ktime("FIRST_SWITCHED"),
            Meaning::Time {
                first: true,
                since_boot: true
            }
        );
        assert_eq!(
            ktime("LAST_SWITCHED"),
            Meaning::Time {
                first: false,
                since_boot: true
            }
        );
        assert_eq!(
            Meaning::of(Some(&Scalar::Swapped), "n", 16, false),
            Meaning::Copied
        );
        let items = Meaning::of(Some(&Scalar::Unsigned), "flags", 64, true);
        assert_eq!(items, Meaning::Quantity, "a count for each flag");
    }

    #[test]
    fn the_operators_rule_comes_first() {
        let rules = |default, fields: &[(&str, MergeRule)]| MergeRules {
            default,
            fields: fields
                .iter()
                .map(|(path, rule)| ((*path).to_owned(), *rule))
                .collect(),
        };
        let least = Meaning::Extreme(MergeRule::Min);
        assert_eq!(
            rules(MergeRule::Sum, &[]).join("a.min", least).rule,
            MergeRule::Min
        );
        assert_eq!(
            rules(MergeRule::Last, &[]).join("a.min", least).rule,
            MergeRule::Last
        );
        assert_eq!(
            rules(MergeRule::Sum, &[("a", MergeRule::Sum)])
                .join("a.min", least)
                .rule,
            MergeRule::Sum
        );
        let time = Meaning::Time {
            first: false,
            since_boot: true,
        };
        assert_eq!(
            rules(MergeRule::Sum, &[("t", MergeRule::Sum)])
                .join("t", time)
                .rule,
            MergeRule::Max
        );
        assert_eq!(
            rules(MergeRule::Max, &[])
                .join("port", Meaning::Identity)
                .rule,
            MergeRule::Last
        );
        assert_eq!(
            rules(MergeRule::Max, &[]).join("", Meaning::Identity).rule,
            MergeRule::Max
        );
        assert_eq!(
            rules(MergeRule::Max, &[])
                .join("flags", Meaning::Flags)
                .rule,
            MergeRule::Or
        );
    }
}
