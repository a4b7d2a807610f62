//! OpenMetrics 1.0, and the text format of Prometheus made from it (see `plain.rs`): numbers become
//! samples, keys become labels.
//!
//! - A value that is a number is one family, named after its metric (with the probe's `subsystem`
//!   before it). Each number of a struct has a family of its own, named `metric_member`. Booleans
//!   are 0 and 1, enums their number, times and flags the number they are stored as. Texts,
//!   addresses and blobs are not numbers: the encoder leaves them out and counts them.
//! - Labels are `probe`, `direction`, `interface` (of a probe on one interface), those of the
//!   probe's configuration, the parts of the key (`key` if it has no parts), `cpu` if values are
//!   not aggregated, and `index`, `index1`, ... for arrays. A part of the key with one of these
//!   names gets the prefix `key_`.
//! - Names with nanoseconds, milliseconds, kilobytes and the like get seconds and bytes, and the
//!   encoder converts numbers: [`names::units`]. Times are seconds since 1970, in families called
//!   `NAME_timestamp_seconds`.
//! - A metric that is reset with each window is a gauge. Numbers without a sign whose windows add
//!   up by `sum` are counters, and get the ending `_total` if they lack it; by another rule they
//!   are gauges. A live number is a counter if its name ends in `_total`, else a gauge. Only
//!   windows of versions that did not store the rule are `unknown`.
//! - If exactly one part of a key is an interface, it is called `interface`. `key_label` names a
//!   key without parts. If there are more entries than `max_series`, the encoder writes the largest
//!   ones, and the sum of all others as one entry with the key `other`.
//! - An array with the tag `histogram` becomes a histogram: slot `i` counts the values whose
//!   highest bit is `i`, hence up to `le = 2^(i+1) - 1`, in base units. Its metric may have another
//!   one beside it, one number with the name and `_sum` ([`names::sums`]): then the buckets come
//!   with `_count` and `_sum`. The specification wants both or none.
//! - A map of maps becomes the entries of its inner maps. Their labels are the parts of the outer
//!   key, then those of the inner key, named `inner` or `inner_part`.
//! - Families of the same name, of several probes or of both directions, are merged. The merged
//!   family is `unknown` if the types differ, and has the first help that is not empty. A PUT
//!   refuses two tables of one probe that need the same name ([`names::collisions`]). For probes of
//!   earlier versions, and for families with the name of one of the daemon's own, the encoder
//!   leaves out the second one and counts it.
//! - Different keys have different labels, with any bytes. The encoder escapes bytes that the text
//!   of a value leaves out (bytes after a NUL, payloads of NaNs). Padding that is not zero is the
//!   label `padding`. See `decode/key.rs`.

pub mod ahead;
pub mod collector;
pub mod fill;
pub mod histogram;
pub mod info;
pub mod names;
pub mod page_encoder;
pub mod rows;
pub mod samples;
pub mod series;
pub mod text;
