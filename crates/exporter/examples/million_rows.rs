//! How long a million rows take to encode: `cargo run --release -p twinprobe-exporter --example million_rows`.

use std::{io, sync::Arc, time::Instant};

use twinprobe_ebpf_common::{Layout, MapKind, RawTable, TableLayout};
use twinprobe_exporter::{Aggregation, Context, Document, Format, Metric, MetricTable, encode};

const ROWS: u32 = 1_000_000;
const ROUNDS: usize = 9;

fn main() {
    for (kind, slots, agg) in [
        (MapKind::Hash, 1, None),
        (MapKind::PercpuHash, 2, None),
        (MapKind::PercpuHash, 2, Some(Aggregation::Sum)),
    ] {
        let layout = TableLayout { kind, key: Layout::unsigned(4), value: Layout::unsigned(8), slots };
        let document = document(layout, agg);
        for format in Format::ALL {
            let mut sink = Counter(0);
            let mut times: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    sink.0 = 0;
                    let start = Instant::now();
                    encode(&document, &Context::default(), format, &mut sink).expect("a counter takes all");
                    start.elapsed()
                })
                .collect();
            times.sort_unstable();
            let agg = agg.map_or("no", Aggregation::name);
            let (name, median) = (format.name(), times[ROUNDS / 2]);
            println!("{:12} {agg} aggregation, {name}: {median:.1?}, {} bytes", kind.name(), sink.0);
        }
    }
}

fn document(layout: TableLayout, agg: Option<Aggregation>) -> Document {
    let mut table = RawTable::default();
    for row in 0..ROWS {
        table.keys.extend_from_slice(&row.wrapping_mul(2_654_435_761).to_le_bytes());
        for slot in 0..layout.slots as u64 {
            table.values.extend_from_slice(&(u64::from(row) * 1_000_003 + slot).to_le_bytes());
        }
    }
    let metric = Metric {
        name: "packets_total".into(),
        map: "packets".into(),
        help: String::new(),
        agg,
        layout: Arc::new(layout),
    };
    let ingress = vec![MetricTable { metric: Arc::new(metric), table }];
    Document { probe: "flows".into(), ingress, ..Document::default() }
}

/// Counts bytes and forgets them.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
