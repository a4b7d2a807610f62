//! Time to encode a million rows: `cargo run --release -p twinprobe-exporter --example
//! million_rows`, with part of a line's name to measure only that line.

use std::sync::Arc;
use std::time::Instant;

use twinprobe_ebpf_common::{
    Aggregation, Direction, Format, Head, Layout, MapKind, Member, MetricHead, RawTable, Render,
    Shape, TableLayout,
};
use twinprobe_exporter::{Metric, document_encoder};

const ROWS: u32 = 1_000_000;
const ROUNDS: usize = 9;
/// The number of entries that are written between two checks of the buffer's size.
const PIECE: usize = 256;
const CHUNK: usize = 64 * 1024;

fn main() {
    let number = |kind, slots| TableLayout {
        kind,
        key: Layout::unsigned(4),
        value: Layout::unsigned(8),
        slots,
        inner: None,
    };
    let flows = TableLayout {
        kind: MapKind::Hash,
        key: five_tuple(),
        value: counters(),
        slots: 1,
        inner: None,
    };
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for (name, layout, agg) in [
        ("u32 -> u64", number(MapKind::Hash, 1), None),
        ("u32 -> u64, 2 CPUs", number(MapKind::PercpuHash, 2), None),
        (
            "u32 -> u64, sum of 2 CPUs",
            number(MapKind::PercpuHash, 2),
            Some(Aggregation::Sum),
        ),
        ("5-tuple -> 6 fields", flows, None),
    ] {
        let (metric, pieces) = metric(layout, agg);
        for format in Format::ALL {
            if !format!("{name} {}", format.name()).contains(&wanted) {
                continue;
            }
            let mut length = 0;
            let mut times: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    let start = Instant::now();
                    length = encode(format, &metric, &pieces);
                    start.elapsed()
                })
                .collect();
            times.sort_unstable();
            let (least, median) = (times[0], times[ROUNDS / 2]);
            println!(
                "{name:25} {:11} {median:8.1?} (least {least:.1?}), {} bytes",
                format.name(),
                length
            );
        }
    }
}

/// Returns the length of the document in bytes.
fn encode(format: Format, metric: &Arc<Metric>, pieces: &[RawTable]) -> usize {
    let (mut length, mut out) = (0, Vec::with_capacity(2 * CHUNK));
    let mut hand_on = |out: &mut Vec<u8>| {
        length += out.len();
        out.clear();
    };
    let head = Head {
        probe: "flows",
        ..Head::default()
    };
    let mut encoder = document_encoder(format, &head, Arc::default(), &mut out);
    encoder.add_metric(metric);
    while encoder.next_table(&mut out).is_some() {
        for piece in pieces {
            encoder.rows(piece, &mut out);
            if out.len() >= CHUNK {
                hand_on(&mut out);
            }
        }
    }
    encoder.finish(&mut out);
    hand_on(&mut out);
    length
}

fn record(size: usize, members: &[(&str, usize, usize, Option<Render>)]) -> Layout {
    let members = members.iter().map(|&(name, offset, size, render)| Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout: Layout {
            render,
            ..Layout::unsigned(size)
        },
    });
    Layout {
        size,
        shape: Shape::Struct(members.collect()),
        render: None,
    }
}

fn five_tuple() -> Layout {
    let (ipv4, be16) = (Some(Render::Ipv4), Some(Render::Be16));
    record(
        16,
        &[
            ("saddr", 0, 4, ipv4),
            ("daddr", 4, 4, ipv4),
            ("sport", 8, 2, be16),
            ("dport", 10, 2, be16),
            ("proto", 12, 1, None),
        ],
    )
}

fn counters() -> Layout {
    record(
        40,
        &[
            ("packets", 0, 8, None),
            ("bytes", 8, 8, None),
            ("first", 16, 8, None),
            ("last", 24, 8, None),
            ("syn", 32, 4, None),
            ("fin", 36, 4, None),
        ],
    )
}

/// Returns a metric, and the entries of its map in pieces.
fn metric(layout: TableLayout, agg: Option<Aggregation>) -> (Arc<Metric>, Vec<RawTable>) {
    let mut table = RawTable::default();
    for row in 0..ROWS {
        let key = row.wrapping_mul(2_654_435_761).to_le_bytes();
        table.keys.extend(key.iter().cycle().take(layout.key.size));
        for slot in 0..layout.value_stride() as u64 / 8 {
            table.values.extend_from_slice(
                &((u64::from(row) * 1_000_003 + slot) >> (slot * 8)).to_le_bytes(),
            );
        }
    }
    let head = MetricHead {
        agg,
        ..MetricHead::new(
            Direction::Ingress,
            "packets_total",
            "packets",
            Arc::new(layout),
        )
    };
    let metric = Metric::from(head);
    let piece = |first| table.slice(first, first + PIECE, &metric.layout);
    let pieces = (0..ROWS as usize).step_by(PIECE).map(piece).collect();
    (Arc::new(metric), pieces)
}
