//! How long the strategies take; `TWINPROBE_SCALE=full cargo test --release -p twinprobe speed -- --nocapture`
//! prints the numbers for a million entries.

use std::time::Instant;

use super::*;

#[test]
fn speed_of_the_strategies() {
    let full = std::env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    let (count, rounds) = if full { (1_000_000, 5) } else { (50_000, 1) };
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LruHash, MapKind::Array, MapKind::LpmTrie] {
        let key_size = if kind == MapKind::LpmTrie { 8 } else { 4 };
        let capacity = if kind == MapKind::LruHash { 2 * count } else { count };
        let mut accesses = accesses(kind);
        accesses.dedup_by_key(|access| access.strategy);
        for access in accesses {
            let table = table(kind, (key_size, 8), capacity, access, super::super::CHUNK_BYTES);
            let value = value(&table.layout, 1);
            for after in [AfterRead::Keep, AfterRead::Reset] {
                let mut times = Vec::new();
                for _ in 0..rounds {
                    (0..count)
                        .for_each(|n| sys::map_update(table.fd(), &key(kind, key_size, n), &value).unwrap());
                    let (mut rows, mut largest) = (0, 0);
                    let started = Instant::now();
                    let mut sink = |chunk: &RawTable| {
                        rows += chunk.len(&table.layout);
                        largest = largest.max(chunk.keys.len() + chunk.values.len());
                        ControlFlow::Continue(())
                    };
                    let _ = table.read_chunks(after, &mut Taken::default(), &mut sink).unwrap();
                    times.push(started.elapsed());
                    assert_eq!(rows, count as usize, "{kind:?} {:?}", access.strategy);
                    assert!(largest <= 2 * super::super::CHUNK_BYTES, "a chunk of {largest} bytes");
                }
                times.sort();
                println!(
                    "{count} {} {:?} {after:?}: {:?}",
                    kind.name(),
                    access.strategy,
                    times[times.len() / 2]
                );
            }
        }
    }
}
