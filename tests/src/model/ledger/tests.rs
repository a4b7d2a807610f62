use super::*;

const NAME: Name = ("hash", "packets");

fn ledger(mode: Mode) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.begin(NAME, mode, false, Room::Below(100), 0);
    ledger
}

fn rows(rows: &[(Key, u64)]) -> BTreeMap<Key, u64> {
    rows.iter().copied().collect()
}

#[test]
fn every_packet_is_in_one_window() {
    let mut ledger = ledger(Mode::Window);
    ledger.see(1, Range::exactly(10), 0, 20);
    // The first window ends while the burst is under way.
    ledger.read(NAME, &rows(&[(1, 4)]), 15).unwrap();
    assert!(
        ledger.clone().read(NAME, &rows(&[(1, 5)]), 30).is_err(),
        "one is missing"
    );
    assert!(
        ledger.clone().read(NAME, &rows(&[(1, 7)]), 30).is_err(),
        "one is counted twice"
    );
    ledger.read(NAME, &rows(&[(1, 6)]), 30).unwrap();
    ledger.read(NAME, &rows(&[]), 40).unwrap();
    assert!(
        ledger.read(NAME, &rows(&[(2, 1)]), 50).is_err(),
        "never sent"
    );
}

#[test]
fn what_is_not_known_is_once_it_was_read() {
    let mut ledger = ledger(Mode::Live);
    ledger.see(1, Range::up_to(10), 0, 20);
    ledger.read(NAME, &rows(&[(1, 7)]), 30).unwrap();
    assert!(ledger.read(NAME, &rows(&[(1, 8)]), 40).is_err());
}

#[test]
fn sums_keep_what_maps_lose() {
    let mut ledger = ledger(Mode::Sum);
    ledger.see(1, Range::exactly(10), 0, 20);
    ledger.read(NAME, &rows(&[(1, 10)]), 30).unwrap();
    ledger.see(2, Range::exactly(5), 40, 50);
    ledger.lose(NAME, false, 60);
    assert!(
        ledger.clone().read(NAME, &rows(&[]), 70).is_err(),
        "the sum is lost, too"
    );
    ledger.read(NAME, &rows(&[(1, 10)]), 70).unwrap();
    // A sum that becomes a window begins with the counts of the open window.
    ledger.see(3, Range::exactly(2), 80, 90);
    ledger.turn(NAME, Mode::Window, Room::Below(100));
    ledger.read(NAME, &rows(&[(3, 2)]), 100).unwrap();
}

#[test]
fn a_full_map_keeps_what_is_in_it() {
    let mut ledger = ledger(Mode::Live);
    (1..=4).for_each(|key| ledger.see(key, Range::exactly(1), 0, 1));
    ledger.turn(NAME, Mode::Live, Room::Any(2));
    assert!(
        ledger.clone().read(NAME, &rows(&[(1, 1)]), 10).is_err(),
        "there is room for two"
    );
    ledger.read(NAME, &rows(&[(1, 1), (3, 1)]), 10).unwrap();
    assert!(
        ledger.read(NAME, &rows(&[(1, 1), (2, 1)]), 20).is_err(),
        "key 3 was in it"
    );
}
