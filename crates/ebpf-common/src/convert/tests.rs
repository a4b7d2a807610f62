use super::rows::{carries, convert, convert_onto, convert_slots};
use super::value::Conversion;
use crate::layout::{Layout, Member, Shape};
use crate::map_kind::MapKind;
use crate::table::{RawTable, TableLayout};

fn int(size: usize, signed: bool) -> Layout {
    Layout {
        size,
        shape: Shape::Int { signed },
        render: None,
    }
}

fn member(name: &str, bit_offset: usize, bitfield: Option<u8>, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset,
        bitfield,
        layout,
    }
}

fn structure(size: usize, members: Vec<Member>) -> Layout {
    Layout {
        size,
        shape: Shape::Struct(members),
        render: None,
    }
}

fn converted(from: &Layout, to: &Layout, value: &[u8]) -> Vec<u8> {
    let mut out = vec![0; to.size];
    Conversion::new(from, to).value(value, &mut out);
    out
}

#[test]
fn fields_are_found_by_name_wherever_they_are() {
    let inner = |swap: bool| {
        let (a, b) = if swap { (32, 0) } else { (0, 32) };
        structure(
            8,
            vec![
                member("a", a, None, int(4, false)),
                member("b", b, None, int(4, false)),
            ],
        )
    };
    let from = structure(
        24,
        vec![
            member("gone", 0, None, int(8, false)),
            member("kept", 64, None, int(8, false)),
            member("in", 128, None, inner(false)),
        ],
    );
    let to = structure(
        24,
        vec![
            member("in", 0, None, inner(true)),
            member("new", 64, None, int(8, false)),
            member("kept", 128, None, int(8, false)),
        ],
    );
    let value: Vec<u8> = [1_u64, 2, 3 | 4 << 32]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let expected: Vec<u8> = [4_u64 | 3 << 32, 0, 2]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    assert_eq!(converted(&from, &to, &value), expected);
}

#[test]
fn numbers_keep_their_value_in_another_width() {
    assert_eq!(
        converted(&int(2, true), &int(8, true), &(-5_i16).to_le_bytes()),
        (-5_i64).to_le_bytes()
    );
    assert_eq!(
        converted(&int(2, false), &int(4, false), &[0xff, 0xff]),
        [0xff, 0xff, 0, 0]
    );
    assert_eq!(
        converted(&int(8, false), &int(4, false), &7_u64.to_le_bytes()),
        7_u32.to_le_bytes()
    );
    assert_eq!(
        converted(&int(8, false), &int(4, false), &(7_u64 << 32).to_le_bytes()),
        [0xff; 4],
        "no room"
    );
    assert_eq!(
        converted(&int(8, true), &int(1, true), &(-300_i64).to_le_bytes()),
        [0x80]
    );
    let bits = |name: &str, offset, width| member(name, offset, Some(width), int(4, true));
    let from = structure(4, vec![bits("a", 0, 5), bits("b", 5, 11)]);
    let to = structure(
        8,
        vec![member("b", 0, None, int(4, true)), bits("a", 37, 3)],
    );
    let word = 0b00110_u32 | (0b111_1111_1101 << 5);
    let out = converted(&from, &to, &word.to_le_bytes());
    assert_eq!(out[..4], (-3_i32).to_le_bytes());
    assert_eq!(u32::from_le_bytes(out[4..].try_into().unwrap()), 0b110 << 5);
}

#[test]
fn arrays_keep_what_fits() {
    let array = |element: Layout, len: usize| Layout {
        size: len * element.size,
        shape: Shape::Array {
            element: Box::new(element),
            len,
        },
        render: None,
    };
    assert_eq!(
        converted(
            &array(int(1, false), 3),
            &array(int(1, false), 2),
            &[1, 2, 3]
        ),
        [1, 2]
    );
    assert_eq!(
        converted(&array(int(1, false), 2), &array(int(2, false), 3), &[1, 2]),
        [1, 0, 2, 0, 0, 0]
    );
}

#[test]
fn other_keys_are_another_table() {
    let layout = |key: usize, value: usize| TableLayout {
        kind: MapKind::PercpuHash,
        key: int(key, false),
        value: int(value, false),
        slots: 2,
        inner: None,
    };
    let values = [1_u64, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
    let table = RawTable {
        keys: vec![9, 0, 0, 0],
        values,
        inner: Vec::new(),
    };
    // Slots of 4 bytes lie 8 bytes apart.
    assert_eq!(
        convert(&table, &layout(4, 4), &layout(4, 8)),
        Some(table.clone())
    );
    assert_eq!(convert(&table, &layout(4, 4), &layout(8, 4)), None);
}

#[test]
fn another_number_of_cpus_loses_nothing() {
    let layout = |slots: usize, value: usize| TableLayout {
        kind: MapKind::PercpuHash,
        key: int(1, false),
        value: int(value, false),
        slots,
        inner: None,
    };
    let table = |values: &[u64]| {
        let values = values.iter().flat_map(|n| n.to_le_bytes()).collect();
        RawTable {
            keys: vec![7, 8],
            values,
            inner: Vec::new(),
        }
    };
    let three = table(&[1, 2, 3, 4, 5, 6]);
    let more = convert_slots(&three, &layout(3, 4), &layout(4, 8)).unwrap();
    assert_eq!(more, [table(&[1, 2, 3, 0, 4, 5, 6, 0])]);
    let fewer = convert_slots(&three, &layout(3, 4), &layout(1, 4)).unwrap();
    assert_eq!(fewer, [table(&[2, 5]), table(&[3, 6]), table(&[1, 4])]);
    let fewer = convert_slots(&three, &layout(3, 4), &layout(2, 4)).unwrap();
    assert_eq!(fewer, [table(&[3, 0, 6, 0]), table(&[1, 2, 4, 5])]);
    assert_eq!(
        convert_slots(&three, &layout(3, 4), &layout(3, 4)).unwrap(),
        std::slice::from_ref(&three)
    );
}

#[test]
fn a_scalar_has_no_counterpart_in_a_struct() {
    let layout = |value: Layout| TableLayout {
        kind: MapKind::Array,
        key: int(4, false),
        value,
        slots: 1,
        inner: None,
    };
    let of = |name: &str| layout(structure(8, vec![member(name, 0, None, int(8, false))]));
    assert!(!carries(&layout(int(8, false)), &of("packets")));
    assert!(!carries(&of("packets"), &of("bytes")));
    assert!(carries(&of("packets"), &of("packets")));
    assert!(carries(&layout(int(4, false)), &layout(int(8, false))));
    let other_key = TableLayout {
        key: int(8, false),
        ..of("packets")
    };
    assert!(!carries(&of("packets"), &other_key));
}

#[test]
fn fields_that_are_new_are_as_in_the_blank_value() {
    let layout = |members| TableLayout {
        kind: MapKind::Array,
        key: Layout::unsigned(4),
        value: members,
        slots: 1,
        inner: None,
    };
    let old = layout(structure(1, vec![member("kept", 0, None, int(1, false))]));
    let both = vec![
        member("new", 0, None, int(1, false)),
        member("kept", 8, None, int(1, false)),
    ];
    let new = layout(structure(2, both));
    let rows = RawTable {
        keys: vec![0; 4],
        values: vec![7],
        ..RawTable::default()
    };
    let converted = convert_onto(&[5, 6], &rows, &old, &new).expect("the keys are the same");
    assert_eq!(converted.values, [5, 7]);
}
