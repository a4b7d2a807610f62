//! Bodies of the fuzz targets. Ordinary tests also call them, see `crates/exporter/tests/fuzz.rs`.
//!
//! An input is a BTF blob. For `decode`, eight bytes of choices and the content of a map follow the
//! blob.

use std::io;
use std::sync::Arc;

use twinprobe_ebpf_common::{
    Aggregation, Btf, Completeness, Context, Direction, Format, Head, Layout, MapKind, MergeRule,
    MetricHead, RawTable, SeriesRules, TableLayout, Temporality,
};
use twinprobe_exporter::{Accumulator, Metric, document_encoder};

/// The largest number of types that are laid out for each input: each can take some milliseconds.
const MAX_TYPES: usize = 24;

/// Parses a BTF blob and calls every query on it.
pub fn btf_parse(input: &[u8]) {
    let Ok(btf) = Btf::parse(input) else { return };
    for id in (0..3)
        .chain(btf.type_ids().take(MAX_TYPES))
        .chain([u32::MAX])
    {
        if let Ok(layout) = btf.layout(id) {
            assert_eq!(btf.size_of(id), Ok(layout.size));
            assert_ne!(layout.size, 0);
        }
        let _ = btf.size_of(id);
    }
    for name in ["struct a", "enum a", "a", "unsigned int", ""] {
        let _ = btf.named_type(name);
    }
    for section in [".maps", ".bss", ".data", ""] {
        for variable in btf.section_variables(section).iter().take(MAX_TYPES) {
            let inner = btf
                .inner_map_definition(&variable.name)
                .map(|inner| inner.types);
            for types in btf.map_definition(&variable.name).into_iter().chain(inner) {
                let _ = types.key.map(|key| btf.layout(key));
                let _ = types.value.map(|value| btf.layout(value));
            }
        }
    }
}

/// Lays a map out by two types of the blob, adds the map up to itself and writes it in every
/// format, in two pieces. The inner maps of a map of maps have the types of the blob's first
/// definition, or else the same two types.
pub fn decode(input: &[u8]) {
    let Some((blob, rest)) = blob_len(input).and_then(|len| input.split_at_checked(len)) else {
        return;
    };
    let Some((&[kind, agg, slots, reading, keys, values, split, inner], content)) =
        rest.split_first_chunk()
    else {
        return;
    };
    let Ok(btf) = Btf::parse(blob) else { return };
    let (Ok(key), Ok(value)) = (btf.layout(keys.into()), btf.layout(values.into())) else {
        return;
    };
    let any = |choice: u8| MapKind::ALL[usize::from(choice) % MapKind::ALL.len()];
    let plain = |kind: MapKind, key: Layout, value: Layout| {
        let slots = if kind.is_percpu() {
            usize::from(slots % 5)
        } else {
            1
        };
        TableLayout {
            kind,
            key,
            value,
            slots,
            inner: None,
        }
    };
    let halves = |bytes: &[u8]| {
        let (keys, values) = bytes.split_at(bytes.len() * usize::from(split) / 255);
        RawTable {
            keys: keys.to_vec(),
            values: values.to_vec(),
            ..RawTable::default()
        }
    };
    let kind = any(kind);
    let (layout, table) = if kind.is_nested() {
        let (inner_key, inner_value) = inner_layouts(&btf).unwrap_or_else(|| (key.clone(), value));
        // The kernel has no maps of maps of maps.
        let inner_kind = Some(any(inner))
            .filter(|kind| !kind.is_nested())
            .unwrap_or(MapKind::PercpuHash);
        let inner_layout = plain(inner_kind, inner_key, inner_value);
        let layout = TableLayout {
            inner: Some(Arc::new(inner_layout)),
            ..plain(kind, key, Layout::unsigned(4))
        };
        (layout, nested(content, inner, halves))
    } else {
        (plain(kind, key, value), halves(content))
    };
    let layout = Arc::new(layout);
    let head = MetricHead {
        help: "\\\"\n".into(),
        agg: Aggregation::ALL.get(usize::from(agg)).copied(),
        temporality: [
            Temporality::Window,
            Temporality::Cumulative,
            Temporality::Live,
        ][usize::from(reading % 3)],
        completeness: Completeness {
            max_entries: Some(u32::from(agg)),
            ..Completeness::default()
        },
        series: SeriesRules {
            merge: Some(
                MergeRule::NAMES[usize::from(agg) % MergeRule::NAMES.len()]
                    .1
                    .into(),
            ),
            key_label: (agg > 7).then(|| "label".to_owned()),
            max_series: (agg > 5).then_some(u64::from(reading)),
            series_by: None,
            subsystem: (agg > 6).then(|| "net".to_owned()),
        },
        ..MetricHead::new(Direction::Egress, "m_total", "m", Arc::clone(&layout))
    };
    let metric: Arc<Metric> = Arc::new(head.into());

    let (_, rule) = MergeRule::NAMES[usize::from(agg) % MergeRule::NAMES.len()];
    let mut total = Accumulator::new(layout, &rule.into()).expect("no fields are named");
    total.add(&table, 1, 7);
    total.add(&table, 2, 7);

    let interfaces = [(1, "\0\"".to_owned())].into();
    let context = Arc::new(Context {
        boot_time_ns: 1 << 60,
        interfaces,
        ..Context::default()
    });
    for format in Format::ALL {
        let mut sink = Sink {
            format,
            json: Vec::new(),
        };
        let mut out = Vec::new();
        let head = Head {
            probe: "p\"",
            ..Head::default()
        };
        let mut encoder = document_encoder(format, &head, Arc::clone(&context), &mut out);
        let tables = [&table, total.table()];
        tables.iter().for_each(|_| encoder.add_metric(&metric));
        while let Some(next) = encoder.next_table(&mut out) {
            encoder.rows(tables[next], &mut out);
            sink.take(&mut out);
            while encoder.more(&mut out) {
                sink.take(&mut out);
            }
        }
        encoder.finish(&mut out);
        sink.take(&mut out);
        sink.check();
    }
}

/// Returns the layouts of key and value of the inner maps, for the first map of maps in the blob.
fn inner_layouts(btf: &Btf) -> Option<(Layout, Layout)> {
    let variables = btf.section_variables(".maps");
    let mut definitions = variables
        .iter()
        .take(MAX_TYPES)
        .map(|map| btf.inner_map_definition(&map.name));
    let types = definitions.find_map(|definition| definition)?.types;
    Some((btf.layout(types.key?).ok()?, btf.layout(types.value?).ok()?))
}

/// Returns a map of maps with too few, enough or too many inner maps for its entries.
fn nested(content: &[u8], choice: u8, table: impl Fn(&[u8]) -> RawTable) -> RawTable {
    let (outer, maps) = content.split_at(content.len() / 4);
    let count = usize::from(choice >> 4) + 1;
    let inner = maps
        .chunks(maps.len().div_ceil(count).max(1))
        .map(table)
        .collect();
    RawTable {
        keys: outer.to_vec(),
        values: outer.to_vec(),
        inner,
    }
}

/// Returns the length of the blob by its header.
fn blob_len(input: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(u32::from_le_bytes(*input.get(at..)?.first_chunk()?) as usize);
    let (header, types, strings) = (
        word(4)?,
        word(8)?.checked_add(word(12)?)?,
        word(16)?.checked_add(word(20)?)?,
    );
    header.checked_add(types.max(strings))
}

/// Keeps documents that are not too large to be parsed.
struct Sink {
    format: Format,
    json: Vec<u8>,
}

impl Sink {
    const MAX: usize = 1 << 20;

    fn take(&mut self, out: &mut Vec<u8>) {
        if self.format == Format::Json && self.json.len() <= Self::MAX {
            let _ = io::Write::write_all(&mut self.json, out);
        }
        out.clear();
    }

    fn check(&self) {
        if self.format == Format::Json && self.json.len() <= Self::MAX {
            let parsed = serde_json::from_slice::<serde_json::Value>(&self.json);
            assert!(
                parsed.is_ok(),
                "{parsed:?}: {}",
                String::from_utf8_lossy(&self.json)
            );
        }
    }
}
