//! The page itself: family after family, in pieces.

use super::{
    family::{Family, families, reserved},
    histogram,
    samples::{Dimension, Value},
    source::Source,
    text::{escaped, integer, number},
};
use crate::{
    Context,
    decode::Decoder,
    encode::{CHUNK, Encoded, Progress},
};

/// What ends every page.
const SKIPPED: &str = "\
# TYPE twinprobe_export_skipped counter
# HELP twinprobe_export_skipped Numbers and texts of metrics that can't be samples.
";

#[derive(Debug)]
pub struct Page<'a> {
    sources: Vec<Source<'a>>,
    families: Vec<Family>,
    skipped: u64,
    skipped_before: u64,
    /// The family, its member and the row to be written next.
    position: (usize, usize, usize),
}

impl<'a> Page<'a> {
    /// `own` is what was written before: its names are taken.
    pub fn new(sources: Vec<Source<'a>>, own: &str, skipped_before: u64) -> Self {
        let mut taken = reserved(own);
        taken.extend(reserved(SKIPPED));
        let (families, nameless) = families(&sources, &taken);
        let skipped = sources.iter().map(Source::unfit).fold(nameless, u64::saturating_add);
        Self { sources, families, skipped, skipped_before, position: (0, 0, 0) }
    }

    /// Writes on until there is a chunk to be handed on, or all.
    pub fn write(&mut self, context: &Context, out: &mut Vec<u8>) -> Progress {
        let mut decoder = Decoder::new(context);
        let mut labels = Vec::new();
        let Self { sources, families, position: (at, member, row), .. } = self;
        while let Some(family) = families.get(*at) {
            if (*member, *row) == (0, 0) {
                metadata(family, sources, out);
            }
            while let Some(&(source, value)) = family.members.get(*member) {
                let source = &sources[source];
                let value = &source.samples.values[value];
                if family.kind.is_histogram() {
                    histogram::write(&family.name, source, &value.leaf, out);
                    *row = source.len();
                }
                while *row < source.len() {
                    if !source.is_duplicate(*row) {
                        labels.clear();
                        source.key_labels(*row, &mut decoder, &mut labels);
                        samples(&family.name, source, value, *row, &mut labels, out);
                    }
                    *row += 1;
                    if out.len() >= CHUNK {
                        return Progress::More;
                    }
                }
                (*member, *row) = (*member + 1, 0);
            }
            (*at, *member) = (*at + 1, 0);
            if out.len() >= CHUNK {
                return Progress::More;
            }
        }
        out.extend_from_slice(SKIPPED.as_bytes());
        out.extend_from_slice(b"twinprobe_export_skipped_total ");
        integer(out, self.skipped_before.saturating_add(self.skipped));
        out.extend_from_slice(b"\n# EOF\n");
        Progress::Done(Encoded { skipped: self.skipped })
    }
}

fn metadata(family: &Family, sources: &[Source<'_>], out: &mut Vec<u8>) {
    for part in ["# TYPE ", family.base(), " ", family.kind.name(), "\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let mut helps = family.members.iter().map(|(source, _)| &*sources[*source].metric.help);
    if let Some(help) = helps.find(|help| !help.is_empty()) {
        for part in ["# HELP ", family.base(), " "] {
            out.extend_from_slice(part.as_bytes());
        }
        escaped(out, help);
        out.push(b'\n');
    }
}

/// The samples of one member of one row; `labels` are those of its key.
fn samples(
    name: &str,
    source: &Source<'_>,
    value: &Value,
    row: usize,
    labels: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    for (cpu, bytes) in source.slots(row).enumerate() {
        let key = labels.len();
        if source.is_percpu() {
            labels.extend_from_slice(b",cpu=\"");
            integer(labels, cpu);
            labels.push(b'"');
        }
        let mut sample = |labels: &[u8], base: usize| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(source.labels.as_bytes());
            out.extend_from_slice(labels);
            out.extend_from_slice(b"} ");
            number(out, value.leaf.kind, value.leaf.size, value.leaf.load(bytes, base));
            out.push(b'\n');
        };
        each_item(&value.arrays, 0, labels, &mut sample);
        labels.truncate(key);
    }
}

/// Calls `sample` with the labels and the offset of each element of nested arrays.
fn each_item(arrays: &[Dimension], base: usize, labels: &mut Vec<u8>, sample: &mut impl FnMut(&[u8], usize)) {
    let Some((array, inner)) = arrays.split_first() else { return sample(labels, base) };
    let outer = labels.len();
    for index in 0..array.len {
        labels.extend_from_slice(array.prefix.as_bytes());
        integer(labels, index);
        labels.push(b'"');
        each_item(inner, base + index * array.stride, labels, sample);
        labels.truncate(outer);
    }
}
