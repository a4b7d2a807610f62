use crate::layout::{Member, Render, Shape};

use super::*;

fn member(name: &str, offset: usize, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout,
    }
}

fn shaped(size: usize, shape: Shape) -> Layout {
    Layout {
        size,
        shape,
        render: None,
    }
}

/// Returns the paths of all leaves with their meaning.
fn paths(layout: &Layout) -> Vec<(String, Meaning)> {
    let mut paths = Vec::new();
    Leaves::new(layout, &mut |path, meaning| {
        paths.push((path.to_owned(), meaning));
        Some(())
    });
    paths
}

#[test]
fn leaves_are_numbers_by_their_path() {
    let address = Layout {
        render: Some(Render::Ipv4),
        ..Layout::unsigned(4)
    };
    let flags = Layout {
        render: Some(Render::Hex),
        ..Layout::unsigned(1)
    };
    let members = vec![
        member("peer", 0, address),
        member("flags", 4, flags),
        member("ttl", 5, Layout::unsigned(1)),
        member(
            "port",
            6,
            shaped(
                4,
                Shape::Array {
                    element: Box::new(Layout::unsigned(2)),
                    len: 2,
                },
            ),
        ),
    ];
    let inner = shaped(10, Shape::Struct(members));
    let inner = shaped(
        20,
        Shape::Array {
            element: Box::new(inner),
            len: 2,
        },
    );
    let value = Shape::Struct(vec![
        member("bytes", 0, Layout::unsigned(8)),
        member("tcp", 8, inner),
    ]);
    let expected = [
        ("bytes", Meaning::Quantity),
        ("tcp.flags", Meaning::Flags),
        // The members of an array's items have names of their own, and the items of an array
        // have none.
        ("tcp.ttl", Meaning::Copied),
        ("tcp.port", Meaning::Quantity),
    ];
    let expected = expected.map(|(path, meaning)| (path.to_owned(), meaning));
    assert_eq!(
        paths(&shaped(28, value)),
        expected,
        "an address is not a leaf"
    );
}

#[test]
fn of_members_that_share_bytes_one_is_chosen() {
    let parts = shaped(
        4,
        Shape::Array {
            element: Box::new(Layout::unsigned(2)),
            len: 2,
        },
    );
    let both = vec![
        member("low", 0, Layout::unsigned(2)),
        member("all", 0, Layout::unsigned(4)),
    ];
    assert_eq!(
        paths(&shaped(4, Shape::Union(both))),
        [("all".to_owned(), Meaning::Quantity)]
    );
    let same = vec![
        member("parts", 0, parts),
        member("all", 0, Layout::unsigned(4)),
    ];
    assert_eq!(
        paths(&shaped(4, Shape::Union(same))),
        [("parts".to_owned(), Meaning::Quantity)]
    );
    let chain = [("a", 0), ("b", 1), ("c", 2)]
        .map(|(name, offset)| member(name, offset, Layout::unsigned(2)));
    let chosen = paths(&shaped(4, Shape::Struct(chain.into())));
    let expected = ["a", "c"].map(|name| (name.to_owned(), Meaning::Quantity));
    assert_eq!(
        chosen, expected,
        "where none covers the others, those that do not overlap"
    );
}

#[test]
fn elements_of_arrays_are_visited_one_by_one() {
    let matrix = Shape::Array {
        element: Box::new(Layout::unsigned(2)),
        len: 3,
    };
    let leaves = Leaves::new(&shaped(6, matrix), &mut |_, _| Some(()));
    let value = [1, 0, 2, 0, 3, 1];
    let mut numbers = Vec::new();
    leaves.for_each(|leaf, base| numbers.push(leaf.load(&value, base)));
    assert_eq!(numbers, [1, 2, 0x103]);
}

#[test]
fn what_is_stored_is_what_is_loaded() {
    let signed = Shape::Int { signed: true };
    let swapped = Layout {
        render: Some(Render::Be16),
        ..Layout::unsigned(2)
    };
    for (layout, number, bytes) in [
        (
            shaped(2, signed),
            (-2_i128).cast_unsigned(),
            vec![0xfe, 0xff],
        ),
        (swapped, 0x1234, vec![0x12, 0x34]),
        (
            shaped(4, Shape::Float),
            u128::from(1.5_f64.to_bits()),
            1.5_f32.to_le_bytes().to_vec(),
        ),
        (shaped(1, Shape::Bool), 1, vec![1]),
    ] {
        let mut value = vec![0; layout.size];
        Leaves::new(&layout, &mut |_, _| Some(())).for_each(|leaf, base| {
            leaf.store(&mut value, base, number);
            assert_eq!(leaf.load(&value, base), number);
        });
        assert_eq!(value, bytes);
    }
}
