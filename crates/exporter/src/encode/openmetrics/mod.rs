//! OpenMetrics 1.0: numbers become samples, keys become labels.
//!
//! - A value that is a number is one family, called like its metric; of a struct, each number has a family of
//!   its own, called `metric_member`. Booleans are 0 and 1, enums their number, times and flags the number they
//!   are stored as. Texts, addresses and blobs are no numbers: they are left out and counted.
//! - Labels are `probe`, `direction`, the parts of the key (`key` if it has no parts), `cpu` where values are
//!   not aggregated, and `index`, `index1`, ... for arrays. A part of the key that has one of these names is
//!   prefixed with `key_`.
//! - What is reset with each window is a gauge. What is never reset is a counter if its name ends in `_total`,
//!   else `unknown` or, read live, a gauge.
//! - An array tagged `histogram` is one: slot `i` counts the values whose highest bit is `i`, hence up to
//!   `le = 2^(i+1) - 1`. Its buckets come without `_count` and `_sum`: the sum is not known, and the
//!   specification wants both or none.
//! - Of a map of maps, the entries of the maps in it: labels are the parts of the outer key, then those of the
//!   inner one, called `inner` or `inner_part`.
//! - Families of one name, of several probes or of both directions, are one. If their types differ it is `unknown`;
//!   its help is the first there is. Two tables of one probe and direction can't share a name: what comes second is
//!   left out and counted, and so are families that are called like one of the daemon's own.
//! - Rows whose labels are equal (of keys that differ in padding, say) can't be told apart: all but the first
//!   are left out and counted.

pub mod collector;
pub mod distinct;
pub mod family;
pub mod flat;
pub mod histogram;
pub mod page;
pub mod page_encoder;
pub mod samples;
pub mod series;
pub mod text;
