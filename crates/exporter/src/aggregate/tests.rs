use twinprobe_ebpf_common::{Aggregation, Layout, MapKind, Member, Render, Shape, TableLayout};

use super::{Folder, mean};
use crate::metric::Metric;

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

/// Folds values, each given without the padding of its slot.
fn fold(aggregation: Aggregation, value: &Layout, values: &[&[u8]]) -> Vec<u8> {
    let (key, value) = (Layout::unsigned(4), value.clone());
    let layout = TableLayout {
        kind: MapKind::PercpuArray,
        key,
        value,
        slots: values.len(),
        inner: None,
    };
    let slots: Vec<u8> = values
        .iter()
        .flat_map(|value| [value, &[0xaa; 8][..layout.slot_stride() - value.len()]].concat())
        .collect();
    let metric = Metric::example("m", layout).with(|head| head.agg = Some(aggregation));
    Folder::of(&metric, &metric.layout)
        .expect("a value for each CPU")
        .fold(&slots)
        .to_vec()
}

#[test]
fn numbers_keep_their_sign_and_width() {
    let values: [&[u8]; 3] = [&[250], &[20], &[3]];
    let all = |layout| Aggregation::ALL.map(|aggregation| fold(aggregation, &layout, &values));
    let sum = |sum: i128| sum.to_le_bytes().to_vec();
    assert_eq!(all(int(1, false)), [sum(273), vec![91], vec![3], vec![250]]);
    assert_eq!(
        all(int(1, true)),
        [sum(17), vec![5], vec![250], vec![20]],
        "250 is -6"
    );
    let sums = fold(
        Aggregation::Sum,
        &int(4, true),
        &[&i32::MIN.to_le_bytes(), &(-1_i32).to_le_bytes()],
    );
    assert_eq!(sums, sum(i128::from(i32::MIN) - 1));
    let most = u64::MAX.to_le_bytes();
    assert_eq!(
        fold(Aggregation::Sum, &int(8, false), &[&most, &most]),
        sum(2 * i128::from(u64::MAX))
    );
    let least = i64::MIN.to_le_bytes();
    assert_eq!(
        fold(Aggregation::Sum, &int(8, true), &[&least, &least]),
        sum(2 * i128::from(i64::MIN))
    );
    let most = [0xff; 16];
    assert_eq!(
        fold(Aggregation::Sum, &int(16, false), &[&most, &most]),
        most,
        "it stays at the largest number"
    );
}

#[test]
fn a_sum_leaves_other_numbers_to_what_they_mean() {
    let ktime = Layout {
        render: Some(Render::Ktime),
        ..int(8, false)
    };
    let members = vec![
        member("packets", 0, None, int(4, false)),
        member("min", 32, None, int(1, false)),
        member("max", 40, None, int(1, false)),
        member("flags", 48, None, int(1, false)),
        member("ttl", 56, None, int(1, false)),
        member("last", 64, None, ktime),
    ];
    let layout = Layout {
        size: 16,
        shape: Shape::Struct(members),
        render: None,
    };
    let slot = |bytes: [u8; 5], last: u64| {
        [&[bytes[0], 0, 0, 0], &bytes[1..], &last.to_le_bytes()[..]].concat()
    };
    let slots = [
        slot([200, 9, 20, 1, 64], 7),
        slot([0; 5], 0),
        slot([100, 5, 10, 2, 63], 8),
    ];
    let folded = fold(
        Aggregation::Sum,
        &layout,
        &slots.each_ref().map(|slot| &slot[..]),
    );
    let numbers = folded.chunks(8).map(|number| number[0]).collect::<Vec<_>>();
    assert_eq!(folded[..2], 300_u16.to_le_bytes());
    assert_eq!(
        numbers[2..],
        [5, 20, 3, 63, 8],
        "the CPU that counted nothing has no minimum; the newest CPU's TTL"
    );
}

#[test]
fn averages_are_truncated_towards_zero_and_never_overflow() {
    assert_eq!(
        fold(Aggregation::Avg, &int(1, true), &[&[0xfd], &[0]]),
        [0xff]
    );
    let max = u64::MAX.to_le_bytes();
    assert_eq!(
        fold(Aggregation::Avg, &int(8, false), &[&max, &max, &max]),
        max
    );

    let avg = |values: &[i128]| mean(values.iter().map(|v| v.cast_unsigned()), true).cast_signed();
    assert_eq!(avg(&[i128::MAX, i128::MAX, i128::MIN]), i128::MAX / 3);
    assert_eq!(avg(&[i128::MIN, i128::MIN, 1]), i128::MIN / 3 * 2 - 1);
    assert_eq!(avg(&[i128::MAX, i128::MAX, -1]), i128::MAX / 3 * 2);
    let wide = [u128::MAX, u128::MAX, u128::MAX - 3];
    assert_eq!(mean(wide.into_iter(), false), u128::MAX - 1);
}

#[test]
fn big_endian_numbers_are_swapped_both_ways() {
    let port = Layout {
        render: Some(Render::Be16),
        ..int(2, false)
    };
    assert_eq!(fold(Aggregation::Avg, &port, &[&[0, 255], &[1, 1]]), [1, 0]);
    assert_eq!(
        fold(Aggregation::Sum, &port, &[&[0, 80], &[0, 80]]),
        [0, 80],
        "a port is not a count"
    );
    assert_eq!(fold(Aggregation::Max, &port, &[&[0, 255], &[1, 0]]), [1, 0]);
}

#[test]
fn bitfields_leave_their_neighbours_alone() {
    let members = vec![
        member("a", 0, Some(3), int(4, false)),
        member("b", 3, Some(11), int(4, true)),
        member("c", 14, Some(2), int(4, false)),
    ];
    let layout = Layout {
        size: 4,
        shape: Shape::Struct(members),
        render: None,
    };
    let value =
        |a: u32, b: i32, c: u32| (a | (b.cast_unsigned() & 0x7ff) << 3 | c << 14).to_le_bytes();
    let sum = fold(
        Aggregation::Sum,
        &layout,
        &[&value(5, -700, 1), &value(5, 100, 3)],
    );
    assert_eq!(
        sum,
        [10_i128, -600, 4].map(i128::to_le_bytes).concat(),
        "each has 128 bits"
    );
    let min = fold(
        Aggregation::Min,
        &layout,
        &[&value(5, -700, 1), &value(4, 100, 3)],
    );
    assert_eq!(min, value(4, -700, 1));
}

#[test]
fn wide_bitfields_cross_bytes() {
    let members = vec![member("x", 7, Some(128), int(16, false))];
    let layout = Layout {
        size: 24,
        shape: Shape::Struct(members),
        render: None,
    };
    let mut one = [0; 24];
    (one[0], one[16]) = (0x80, 0x40);
    let mut two = [0; 24];
    two[16] = 0x80;
    assert_eq!(
        fold(Aggregation::Max, &layout, &[&one, &two])[..17],
        one[..17]
    );
    let most = fold(Aggregation::Sum, &layout, &[&one, &one]);
    assert_eq!(
        (most[0], &most[1..16], most[16]),
        (0x80, &[0xff; 15][..], 0x7f),
        "the largest number"
    );
}

#[test]
fn members_that_overlap_are_folded_once() {
    let members = vec![
        member("low", 0, None, int(1, false)),
        member("whole", 0, None, int(2, false)),
        member("after", 16, None, int(1, false)),
    ];
    for shape in [Shape::Struct(members.clone()), Shape::Union(members)] {
        let layout = Layout {
            size: 3,
            shape,
            render: None,
        };
        assert_eq!(
            fold(Aggregation::Max, &layout, &[&[200, 0, 1], &[100, 1, 1]]),
            [100, 1, 1]
        );
        let sum = fold(Aggregation::Sum, &layout, &[&[200, 0, 1], &[100, 0, 1]]);
        assert_eq!(sum[..2], [44, 1]);
    }
}

#[test]
fn what_is_no_number_comes_from_the_first_cpu_that_has_anything() {
    let address = Layout {
        render: Some(Render::Ipv4),
        ..int(4, false)
    };
    let name = Shape::Array {
        element: Box::new(Layout {
            size: 1,
            shape: Shape::Char,
            render: None,
        }),
        len: 2,
    };
    let name = Layout {
        size: 2,
        shape: name,
        render: None,
    };
    let members = vec![
        member("n", 0, None, int(1, false)),
        member("a", 8, None, address),
        member("s", 40, None, name),
    ];
    let layout = Layout {
        size: 7,
        shape: Shape::Struct(members),
        render: None,
    };
    let folded = fold(
        Aggregation::Sum,
        &layout,
        &[
            &[0; 7],
            &[1, 9, 9, 9, 9, b'a', b'b'],
            &[2, 8, 8, 8, 8, b'c', 0],
        ],
    );
    let parts = folded.chunks(8).map(|part| &part[..4]).collect::<Vec<_>>();
    assert_eq!(
        parts,
        [&[3, 0, 0, 0][..], &[0; 4], &[9; 4], &[b'a', b'b', 0, 0]]
    );
}

#[test]
fn floats_and_booleans() {
    let float = Layout {
        size: 4,
        shape: Shape::Float,
        render: None,
    };
    let (one, two) = (1.5_f32.to_le_bytes(), (-4.0_f32).to_le_bytes());
    let folded = |aggregation| {
        let bytes = fold(aggregation, &float, &[&one, &two]);
        f32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    };
    assert_eq!(Aggregation::ALL.map(folded), [-2.5, -1.25, -4.0, 1.5]);

    let flag = Layout {
        size: 1,
        shape: Shape::Bool,
        render: None,
    };
    let folded = Aggregation::ALL.map(|aggregation| fold(aggregation, &flag, &[&[0], &[1]])[0]);
    assert_eq!(folded, [1, 0, 0, 1]);
}
