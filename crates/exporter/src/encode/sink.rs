//! The interface of the formats that write a document as a tree.

use twinprobe_ebpf_common::metric::distribution::Distributions;
use twinprobe_ebpf_common::window::owner::AddressOwner;
use twinprobe_ebpf_common::{Context, Head};

use crate::decode::sink::ValueSink;
use crate::metric::Metric;

/// A format that writes a document as a tree. Its functions write the text around the values.
pub trait DocumentSink: ValueSink + Default + Send + Sync + 'static {
    /// Returns the buffer to which the format appends. During each call of the format, this is the
    /// caller's buffer.
    fn buffer(&mut self) -> &mut Vec<u8>;

    fn begin_document(&mut self, head: &Head<'_>, context: &Context);
    fn end_document(&mut self);
    fn begin_direction(&mut self, name: &str);
    fn end_direction(&mut self, name: &str);
    /// Writes a direction without metrics.
    fn empty_direction(&mut self, name: &str) {
        self.begin_direction(name);
        self.end_direction(name);
    }
    fn begin_metric(&mut self, metric: &Metric);
    /// Begins the sum of the entries that the document leaves out. The joined value of these
    /// entries follows.
    fn begin_others(&mut self, entries: u64);
    fn end_others(&mut self);
    /// Begins the entries of the metric.
    fn begin_entries(&mut self) {}
    /// Ends a metric that has `rows` written entries. A histogram also has a distribution.
    fn end_metric(&mut self, metric: &Metric, rows: u64, distributions: Option<&Distributions>);
    /// Begins an entry; `index` counts the entries of the metric, or of the inner map.
    fn begin_entry(&mut self, index: usize);
    fn begin_key(&mut self);
    fn end_key(&mut self);
    /// Writes the names of the owners of addresses in the key, by the members of the key; writes
    /// nothing if there are no owners.
    fn owners<'a>(&mut self, owners: impl Iterator<Item = (&'a str, &'a AddressOwner)>);
    fn begin_value(&mut self);
    /// Begins a value that is a map of this kind, whose entries follow.
    fn begin_inner(&mut self, _kind: &str) {}
    fn end_inner(&mut self) {}
    fn end_value(&mut self) {}
    fn end_entry(&mut self);
}
