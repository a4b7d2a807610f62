use twinprobe_ebpf_common::{MapKind, Member, MergeRule, Render};

use super::*;

fn table(kind: MapKind, value: Layout, slots: usize) -> Arc<TableLayout> {
    Arc::new(TableLayout {
        kind,
        key: Layout::unsigned(1),
        value,
        slots,
        inner: None,
    })
}

fn raw(keys: &[u8], values: &[u8]) -> RawTable {
    RawTable {
        keys: keys.to_vec(),
        values: values.to_vec(),
        ..RawTable::default()
    }
}

/// Two windows added up.
fn add(layout: &Arc<TableLayout>, rules: &MergeRules, [first, second]: [RawTable; 2]) -> RawTable {
    let mut total = Accumulator::new(layout.clone(), rules).expect("known fields");
    total.add(&first, 1, 1000);
    total.add(&second, 2, 2000);
    total.take()
}

fn member(name: &str, offset: usize, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout,
    }
}

#[test]
fn keys_keep_the_place_they_were_first_seen_at() {
    let layout = table(MapKind::Hash, Layout::unsigned(1), 1);
    let total = add(
        &layout,
        &MergeRule::Max.into(),
        [raw(&[9, 2], &[1, 200]), raw(&[5, 2, 9], &[7, 100, 3])],
    );
    assert_eq!(total, raw(&[9, 2, 5], &[3, 200, 7]));
}

/// Numbers of 64 bits, as rows have them.
fn wide(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

#[test]
fn sums_are_as_wide_as_they_need() {
    let layout = table(MapKind::Hash, Layout::unsigned(4), 1);
    let window = raw(&[7], &3_000_000_000_u32.to_le_bytes());
    let total = add(&layout, &MergeRules::default(), [window.clone(), window]);
    assert_eq!(total.values, wide(&[6_000_000_000]));
    let layout = table(MapKind::PercpuArray, Layout::unsigned(2), 2);
    let slots = |a: u16, b: u16| raw(&[0], &[wide(&[a.into()]), wide(&[b.into()])].concat());
    let total = add(
        &layout,
        &MergeRules::default(),
        [slots(60_000, 1), slots(60_000, 2)],
    );
    assert_eq!(total.values, wide(&[120_000, 3]));
}

/// Numbers of 128 bits.
fn widest(numbers: &[i128]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

#[test]
fn sums_that_64_bits_do_not_hold_go_on_in_128() {
    let layout = table(MapKind::Hash, Layout::unsigned(8), 1);
    let near: u64 = (1 << 63) + 5;
    let mut total =
        Accumulator::new(layout.clone(), &MergeRules::default()).expect("no fields are named");
    for (seq, rows) in [
        (1, raw(&[7, 8], &wide(&[near, 1]))),
        (2, raw(&[8, 7, 9], &wide(&[2, near, 3]))),
    ] {
        total.add(&rows, seq, 0);
    }
    let near = i128::from(near);
    assert_eq!(
        total.table(),
        &raw(&[7, 8, 9], &widest(&[2 * near, 3, 3])),
        "the rows before it, and after it"
    );
    total.add(&raw(&[7], &wide(&[1])), 3, 0);
    assert_eq!(
        (total.table().values[..16].to_vec(), total.ages()),
        (widest(&[2 * near + 1]), &[3, 2, 2][..])
    );
    assert_eq!(
        total.narrowed(0).values,
        wide(&[u64::MAX, 3, 3]),
        "a map has no room for it"
    );

    // Stored sums continue, including sums with another layout.
    for of in [layout, table(MapKind::Hash, Layout::unsigned(4), 1)] {
        let mut next = Accumulator::new(of, &MergeRules::default()).expect("no fields are named");
        assert!(next.add_of(total.table(), total.layout(), 3, 0));
        assert_eq!(next.table(), total.table());
    }

    let signed = Layout {
        size: 8,
        shape: Shape::Int { signed: true },
        render: None,
    };
    let layout = table(MapKind::PercpuArray, signed, 2);
    let slots = |a: i64, b: i64| raw(&[0], &wide(&[a.cast_unsigned(), b.cast_unsigned()]));
    let total = add(
        &layout,
        &MergeRules::default(),
        [slots(i64::MIN, 1), slots(-1, i64::MAX)],
    );
    assert_eq!(
        total.values,
        widest(&[i128::from(i64::MIN) - 1, 1 << 63]),
        "each CPU has its own"
    );
}

#[test]
fn what_can_not_grow_stays_at_the_largest_number() {
    let members = vec![
        member("a", 0, Layout::unsigned(8)),
        member("b", 0, Layout::unsigned(8)),
    ];
    let layout = table(
        MapKind::Hash,
        Layout {
            size: 8,
            shape: Shape::Union(members),
            render: None,
        },
        1,
    );
    let window = raw(&[7], &wide(&[u64::MAX - 1]));
    let total = add(&layout, &MergeRules::default(), [window.clone(), window]);
    assert_eq!(total.values, wide(&[u64::MAX]), "members that share bits");
    let layout = table(MapKind::Hash, Layout::unsigned(16), 1);
    let window = raw(&[7], &[0xff; 16]);
    let total = add(&layout, &MergeRules::default(), [window.clone(), window]);
    assert_eq!(total.values, [0xff; 16], "128 bits");
}

#[test]
fn times_are_compared_by_the_wall_clock_although_the_machine_was_booted_in_between() {
    let ktime = || Layout {
        render: Some(Render::Ktime),
        ..Layout::unsigned(8)
    };
    let value = Shape::Struct(vec![
        member("first", 0, ktime()),
        member("last", 8, ktime()),
    ]);
    let layout = table(
        MapKind::Hash,
        Layout {
            size: 16,
            shape: value,
            render: None,
        },
        1,
    );
    let windows = [raw(&[7], &wide(&[500, 900])), raw(&[7], &wide(&[10, 20]))];
    let total = add(&layout, &MergeRules::default(), windows.clone());
    assert_eq!(total.values, wide(&[1500, 2020]));
    let rules = MergeRules {
        fields: [("last".to_owned(), MergeRule::Sum)].into(),
        ..MergeRules::default()
    };
    assert_eq!(
        add(&layout, &rules, windows).values,
        wide(&[1500, 2020]),
        "times can't be added"
    );
    let never = add(
        &layout,
        &MergeRules::default(),
        [raw(&[7], &wide(&[0, 0])), raw(&[7], &wide(&[5, 0]))],
    );
    assert_eq!(never.values, wide(&[2005, 0]), "zero stands for no time");
}

#[test]
fn every_rule_does_what_its_name_says() {
    let layout = table(MapKind::Hash, Layout::unsigned(1), 1);
    for (rule, expected) in [
        (MergeRule::Sum, 0b1001),
        (MergeRule::Max, 0b0110),
        (MergeRule::Min, 0b0011),
        (MergeRule::Or, 0b0111),
        (MergeRule::Last, 0b0011),
    ] {
        let total = add(
            &layout,
            &rule.into(),
            [raw(&[0], &[0b0110]), raw(&[0], &[0b0011])],
        );
        assert_eq!(total.values[0], expected, "{rule:?}");
    }
}

#[test]
fn fields_have_rules_of_their_own() {
    let hex = Layout {
        render: Some(Render::Hex),
        ..Layout::unsigned(1)
    };
    let inner = Shape::Struct(vec![
        member("first", 0, Layout::unsigned(1)),
        member("flags", 1, hex.clone()),
    ]);
    let inner = Layout {
        size: 2,
        shape: inner,
        render: None,
    };
    let value = Shape::Struct(vec![
        member("bytes", 0, Layout::unsigned(1)),
        member("tcp", 1, inner),
        member("id", 3, hex),
    ]);
    let layout = table(
        MapKind::Hash,
        Layout {
            size: 4,
            shape: value,
            render: None,
        },
        1,
    );
    let fields = [("tcp", MergeRule::Min), ("tcp.flags", MergeRule::Or)];
    let fields = fields.map(|(path, rule)| (path.to_owned(), rule)).into();
    let rules = MergeRules {
        default: MergeRule::Sum,
        fields,
    };
    let total = add(
        &layout,
        &rules,
        [raw(&[0], &[1, 5, 1, 7]), raw(&[0], &[1, 3, 2, 8])],
    );
    assert_eq!(
        total.values,
        [wide(&[2]), wide(&[0x303]), wide(&[8])].concat(),
        "a sum, a minimum, flags, and the newest of what only identifies"
    );

    let rules = MergeRules {
        fields: [("tcp.no".to_owned(), MergeRule::Or)].into(),
        ..Default::default()
    };
    let error = Accumulator::new(layout, &rules).expect_err("there is no such field");
    assert_eq!(error, UnknownField("tcp.no".into()));
}

#[test]
fn slots_nobody_touched_decide_nothing() {
    let layout = table(MapKind::PercpuArray, Layout::unsigned(1), 2);
    let slots = |a, b| raw(&[0], &[a, 0, 0, 0, 0, 0, 0, 0, b, 0, 0, 0, 0, 0, 0, 0]);
    let total = add(&layout, &MergeRule::Min.into(), [slots(4, 0), slots(0, 3)]);
    assert_eq!(total, slots(4, 3));
}

#[test]
fn queues_are_appended() {
    let layout = table(MapKind::Queue, Layout::unsigned(1), 1);
    let total = add(
        &layout,
        &MergeRules::default(),
        [raw(&[], &[1, 2]), raw(&[], &[3])],
    );
    assert_eq!(total, raw(&[], &[1, 2, 3]));
}

#[test]
fn what_was_not_seen_for_longest_goes_first() {
    let layout = table(MapKind::Hash, Layout::unsigned(1), 1);
    let mut total =
        Accumulator::new(layout.clone(), &MergeRules::default()).expect("no fields are named");
    total.add(&raw(&[1, 2, 3], &[10, 20, 30]), 1, 0);
    total.add(&raw(&[4, 1], &[40, 1]), 2, 0);
    assert_eq!((total.bound(4), total.ages()), (0, &[2, 1, 1, 2][..]));
    assert_eq!(
        total.bound(3),
        1,
        "of two that are as old the one that came first"
    );
    assert_eq!(
        (total.table(), total.ages()),
        (&raw(&[1, 3, 4], &wide(&[11, 30, 40])), &[2, 1, 2][..])
    );
    total.add(&raw(&[2, 3], &[5, 1]), 3, 0);
    assert_eq!(
        total.table(),
        &raw(&[1, 3, 4, 2], &wide(&[11, 31, 40, 5])),
        "an entry that went begins anew"
    );
    assert_eq!((total.bound(0), total.table().len(&layout)), (4, 0));

    let layout = table(MapKind::Array, Layout::unsigned(1), 1);
    let mut total = Accumulator::new(layout, &MergeRules::default()).expect("no fields are named");
    total.add(&raw(&[0, 1], &[1, 2]), 1, 0);
    assert_eq!(
        (total.bound(1), total.ages()),
        (0, &[][..]),
        "an array is as large as its map"
    );
}

#[test]
fn ages_are_kept_beside_the_rows() {
    let layout = table(MapKind::LruHash, Layout::unsigned(1), 1);
    let mut total = Accumulator::new(layout, &MergeRules::default()).expect("no fields are named");
    total.add(&raw(&[1, 2, 3], &[1, 2, 3]), 9, 0);
    total.set_ages(&[9, 4, 8]);
    assert_eq!(total.bound(2), 1);
    assert_eq!(
        (total.table(), total.ages()),
        (&raw(&[1, 3], &wide(&[1, 3])), &[9, 8][..])
    );
}

/// A window of a sum whose entries come and go, and the operations of a daemon after it.
#[derive(Clone, Debug)]
struct Step {
    /// Keys, each with its number. Numbers near the end of 64 bits make the sum wider.
    rows: std::collections::BTreeMap<u8, u64>,
    /// The number of entries that the sum may have.
    bound: usize,
    /// The number of windows after which an entry is removed.
    age: u64,
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    let number = prop_oneof![20 => 0_u64..1000, 1 => Just(u64::MAX / 3)];
    (
        proptest::collection::btree_map(0_u8..40, number, 0..12),
        5_usize..40,
        1_u64..9,
    )
        .prop_map(|(rows, bound, age)| Step { rows, bound, age })
}

proptest::proptest! {
    /// For any sequence of windows, the sum of one plus the changes gives exactly the bytes of the
    /// next sum.
    #[test]
    fn changes_make_the_next_sum(
        steps in proptest::collection::vec(step(), 1..30),
        kind in proptest::sample::select(vec![MapKind::Hash, MapKind::LpmTrie, MapKind::PercpuHash]),
    ) {
        let slots = if kind.is_percpu() { 2 } else { 1 };
        let mut total = Accumulator::new(table(kind, Layout::unsigned(8), slots), &MergeRules::default()).unwrap();
        let (mut copy, mut ages) = (RawTable::default(), Vec::new());
        for (seq, Step { rows, bound, age }) in (1_u64..).zip(&steps) {
            let before = Arc::clone(total.layout());
            total.note_changes(seq - 1);
            let values: Vec<u64> = rows.values().flat_map(|number| std::iter::repeat_n(*number, slots)).collect();
            total.add(&raw(&rows.keys().copied().collect::<Vec<_>>(), &wide(&values)), seq, 0);
            total.bound(*bound);
            total.drop_older(seq.saturating_sub(*age));
            proptest::prop_assert_eq!(total.changes(seq), None, "since another window");
            match total.changes(seq - 1) {
                Some(changes) => {
                    let places = changes.places();
                    let read = TableChanges::of_parts(changes.rows.clone(), &places).unwrap();
                    proptest::prop_assert_eq!(&read, &changes);
                    proptest::prop_assert!(read.apply(&mut copy, &mut ages, seq, &before));
                }
                None => {
                    proptest::prop_assert_ne!(&before, total.layout(), "only a wider sum is stored whole");
                    (copy, ages) = (total.table().clone(), total.ages().to_vec());
                }
            }
            proptest::prop_assert_eq!(&copy, total.table());
            proptest::prop_assert_eq!(&ages[..], total.ages());
        }
    }
}

/// An array has all of its slots in each window: only slots with other numbers have changed.
#[test]
fn slots_that_nothing_was_added_to_have_not_changed() {
    let layout = table(MapKind::Array, Layout::unsigned(8), 1);
    let mut total = Accumulator::new(layout, &MergeRules::default()).unwrap();
    total.add(&raw(&[0, 1, 2], &wide(&[1, 2, 3])), 1, 0);
    total.note_changes(1);
    total.add(&raw(&[0, 1, 2], &wide(&[0, 5, 0])), 2, 0);
    let changes = total.changes(1).unwrap();
    assert_eq!(
        (&changes.gone[..], &changes.changed[..]),
        (&[][..], &[1][..])
    );
    assert_eq!(changes.rows, raw(&[], &wide(&[7])));
}
