//! Entries that do not fit into a replacement's map, on real maps: runs as root.

use twinprobe_ebpf_common::{Layout, MapKind};

use super::*;
use crate::attach::quiesce::method::QuiesceMethod;
use crate::attach::quiesce::quiescer::Quiescer;
use crate::sys::cpus;
use crate::sys::map::{MapCreate, map_create, map_update};

fn map(kind: MapKind, max_entries: u32) -> OwnedFd {
    let map_type = kind.bpf_type().unwrap();
    let create = MapCreate {
        name: "tp_test",
        map_type,
        key_size: 4,
        value_size: 8,
        max_entries,
        ..MapCreate::default()
    };
    map_create(&create).unwrap()
}

/// Entries that did not fit at the copy and entries that do not fit at the switch are two losses:
/// no entry is in both.
#[test]
fn entries_that_come_after_the_copy_and_do_not_fit_are_counted() {
    for kind in [MapKind::Hash, MapKind::PercpuHash] {
        let capabilities = Capabilities::probe(
            &Quiescer::start(QuiesceMethod::Auto).unwrap(),
            cpus::possible_cpus().unwrap(),
        );
        let slots = if kind.is_percpu() {
            capabilities.kernel.possible_cpus
        } else {
            1
        };
        let layout = TableLayout {
            kind,
            key: Layout::unsigned(4),
            value: Layout::unsigned(8),
            slots,
            inner: None,
        };
        let (old, new) = (map(kind, 16), map(kind, 2));
        let count = |keys: std::ops::Range<u32>| {
            for key in keys {
                map_update(old.as_fd(), &key.to_ne_bytes(), &vec![1; 8 * slots]).unwrap();
            }
        };
        count(0..5);
        let access = [capabilities.access(kind); 2];
        let table = MapTable::new(
            old.try_clone().unwrap(),
            "m",
            Arc::new(layout.clone()),
            16,
            access,
        );
        let mut transfer = Transfer {
            interface: None,
            direction: "ingress",
            name: "m".to_owned(),
            old: MetricMap::Table(table),
            from: layout.clone(),
            to: layout,
            blank: vec![0; 8],
            target: Target::Live(new, HashMap::new()),
            max_entries: 2,
            left: HashSet::new(),
            filled: HashSet::new(),
        };
        let rows = transfer.rows(AfterRead::Keep).unwrap();
        transfer.put(&rows, &rows, false).unwrap();
        assert_eq!(transfer.left.len(), 3);
        count(5..9);
        let transfers = Transfers {
            transfers: vec![transfer],
            losses: Vec::new(),
        };
        let (remains, losses) = transfers.finish();
        assert!(remains.is_empty());
        let [(_, message)] = &losses[..] else {
            panic!("{kind:?}: {losses:?}")
        };
        assert!(message.contains("map m: 4 counted entries"), "{message}");
    }
}
