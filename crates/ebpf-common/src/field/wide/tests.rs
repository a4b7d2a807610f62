use super::*;
use crate::map_kind::MapKind;

fn member(name: &str, bit_offset: usize, bitfield: Option<u8>, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset,
        bitfield,
        layout,
    }
}

fn table(kind: MapKind, value: Layout) -> TableLayout {
    TableLayout {
        kind,
        key: Layout::unsigned(1),
        value,
        slots: 1,
        inner: None,
    }
}

fn record(size: usize, members: Vec<Member>) -> Layout {
    Layout {
        size,
        shape: Shape::Struct(members),
        render: None,
    }
}

/// Returns the first value of a table after its conversion to its sum's layout, by the paths of its
/// numbers.
fn summed(layout: &Layout, value: &[u8]) -> Vec<(String, u128)> {
    let from = table(MapKind::Hash, layout.clone());
    let to = sums(&from, &MergeRules::default(), SumWidth::Usual);
    let rows = RawTable {
        keys: vec![7],
        values: value.to_vec(),
        ..RawTable::default()
    };
    let wide = &convert_times(&rows, &from, &to, 1000).expect("the same kind")[0];
    assert_eq!(
        narrowed(wide, &to, &from, 1000).expect("the same kind"),
        rows,
        "there and back"
    );
    let mut paths = Vec::new();
    let leaves = Leaves::new(&to.value, &mut |path: &str, _| {
        paths.push(path.to_owned());
        Some(paths.len() - 1)
    });
    let mut numbers = Vec::new();
    leaves.for_each(|leaf, base| {
        numbers.push((leaf.tag, leaf.load(&wide.values, base), leaf.width()));
    });
    numbers
        .into_iter()
        .map(|(tag, number, _)| (paths[tag].clone(), number))
        .collect()
}

#[test]
fn sums_have_64_bits_and_everything_else_its_own() {
    let signed = Layout {
        size: 2,
        shape: Shape::Int { signed: true },
        render: None,
    };
    let list = Shape::Array {
        element: Box::new(Layout::unsigned(2)),
        len: 2,
    };
    let value = record(
        16,
        vec![
            member("packets", 0, None, Layout::unsigned(4)),
            member("missing", 32, None, signed),
            member("port", 48, None, Layout::unsigned(2)),
            member("syn", 64, Some(3), Layout::unsigned(4)),
            member("max", 67, Some(5), Layout::unsigned(4)),
            member(
                "sizes",
                80,
                None,
                Layout {
                    size: 4,
                    shape: list,
                    render: None,
                },
            ),
        ],
    );
    let sum = sums(
        &table(MapKind::Hash, value.clone()),
        &MergeRules::default(),
        SumWidth::Usual,
    );
    let Shape::Struct(members) = &sum.value.shape else {
        panic!("{sum:?}")
    };
    let sizes: Vec<_> = members
        .iter()
        .map(|member| (member.layout.size, member.bitfield))
        .collect();
    assert_eq!(
        sizes,
        [
            (8, None),
            (8, None),
            (2, None),
            (8, None),
            (4, Some(5)),
            (16, None)
        ]
    );
    let bytes = [
        1,
        0,
        0,
        0x80,
        0xfe,
        0xff,
        80,
        0,
        0b1011_0101,
        0,
        4,
        0,
        5,
        1,
        0,
        0,
    ];
    let expected = [
        ("packets", 0x8000_0001),
        ("missing", (-2_i128).cast_unsigned()),
        ("port", 80),
        ("syn", 5),
        ("max", 22),
        ("sizes", 4),
        ("sizes", 0x105),
    ];
    assert_eq!(
        summed(&value, &bytes),
        expected.map(|(path, number)| (path.to_owned(), number))
    );
}

#[test]
fn what_need_not_grow_keeps_its_layout() {
    let value = record(
        16,
        vec![
            member("packets", 0, None, Layout::unsigned(8)),
            member("port", 64, None, Layout::unsigned(2)),
        ],
    );
    let layout = table(MapKind::Hash, value);
    assert_eq!(
        sums(&layout, &MergeRules::default(), SumWidth::Usual),
        layout
    );
    let small = table(MapKind::Hash, Layout::unsigned(1));
    assert_eq!(sums(&small, &MergeRule::Max.into(), SumWidth::Usual), small);
    let queue = table(MapKind::Queue, Layout::unsigned(1));
    assert_eq!(sums(&queue, &MergeRules::default(), SumWidth::Usual), queue);
}

#[test]
fn members_that_share_bits_stand_together() {
    let value = record(
        8,
        vec![
            member("n", 0, None, Layout::unsigned(1)),
            member("all", 16, None, Layout::unsigned(4)),
            member("low", 16, None, Layout::unsigned(2)),
            member("m", 48, None, Layout::unsigned(2)),
        ],
    );
    let expected =
        [("n", 9), ("all", 0x0403_0201), ("m", 7)].map(|(path, number)| (path.to_owned(), number));
    assert_eq!(summed(&value, &[9, 0, 1, 2, 3, 4, 7, 0]), expected);
}

#[test]
fn times_are_those_of_the_wall_clock() {
    let ktime = Layout {
        render: Some(Render::Ktime),
        ..Layout::unsigned(8)
    };
    let value = record(
        16,
        vec![
            member("first", 0, None, ktime.clone()),
            member("last", 64, None, ktime),
        ],
    );
    let bytes = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        summed(&value, &bytes),
        [("first".to_owned(), 1007), ("last".to_owned(), 0)]
    );
}
