//! Tests of BTF that compilers do not write, or only compilers that the tests do not have.

use super::builder::Blob;
use crate::btf::blob::Btf;
use crate::btf::error::BtfError;
use crate::layout::{Layout, Shape};

#[test]
fn headers_are_checked() {
    let mut blob = Blob::new();
    blob.int("int", 4, 1);
    let good = blob.bytes();
    assert!(Btf::parse(&good).is_ok());
    for len in 0..good.len() {
        assert!(Btf::parse(&good[..len]).is_err(), "cut to {len} bytes");
    }
    let with = |index: usize, byte: u8| {
        let mut bad = good.clone();
        bad[index] = byte;
        Btf::parse(&bad).expect_err("damaged")
    };
    assert_eq!(with(0, 0), BtfError::Magic(0xeb00));
    assert_eq!(with(2, 9), BtfError::Version(9));
    assert_eq!(with(4, 23), BtfError::Truncated("header"));
    assert_eq!(with(12, 255), BtfError::Truncated("type section"));
    assert_eq!(with(good.len() - 1, b'x'), BtfError::Strings);
    assert_eq!(with(24 + 7, 31), BtfError::Kind { id: 1, kind: 31 });
}

#[test]
fn variables_have_a_linkage_that_there_is() {
    for linkage in 0..4 {
        let mut blob = Blob::new();
        let int = blob.int("int", 4, 1);
        blob.add("number", 14, 0, int, &[linkage]);
        let expected = if linkage < 3 {
            Ok(())
        } else {
            Err(BtfError::Linkage { id: 2, linkage })
        };
        assert_eq!(Btf::parse(&blob.bytes()).map(drop), expected);
    }
}

#[test]
fn longer_headers_are_skipped() {
    let mut blob = Blob::new();
    blob.int("int", 4, 1);
    let mut bytes = blob.bytes();
    bytes[4] = 28;
    bytes.splice(24..24, [1, 2, 3, 4]);
    assert_eq!(Btf::parse(&bytes).expect("valid").size_of(1), Ok(4));
}

#[test]
fn cycles_are_refused() {
    let mut blob = Blob::new();
    blob.add("loop", 8, 0, 1, &[]);
    blob.add("", 10, 0, 3, &[]);
    blob.add("", 9, 0, 2, &[]);
    let own = blob.structure("own", 8, &[("self", 4, 0)]);
    blob.array(5, 1);
    let btf = blob.btf();
    for id in btf.type_ids() {
        assert!(
            matches!(btf.layout(id), Err(BtfError::Depth { .. })),
            "{id}: {:?}",
            btf.layout(id)
        );
    }
    assert_eq!(btf.size_of(own), Ok(8));
    assert!(matches!(btf.size_of(5), Err(BtfError::Depth { .. })));
}

#[test]
fn sizes_that_overflow_are_refused() {
    let mut blob = Blob::new();
    let int = blob.int("int", 4, 1);
    let mut array = int;
    for _ in 0..20 {
        array = blob.array(array, u32::MAX);
    }
    let btf = blob.btf();
    for id in int + 1..=array {
        assert!(matches!(btf.layout(id), Err(BtfError::Size { .. })));
        assert!(matches!(btf.size_of(id), Err(BtfError::Size { .. })));
    }
}

#[test]
fn layouts_that_explode_are_refused() {
    let mut blob = Blob::new();
    let mut inner = blob.int("char", 1, 1);
    let mut size = 1;
    for level in 0..12 {
        let offsets: Vec<_> = (0..4).map(|index| ("m", inner, 8 * size * index)).collect();
        size *= 4;
        inner = blob.structure(&format!("level{level}"), size, &offsets);
    }
    assert!(matches!(
        blob.btf().layout(inner),
        Err(BtfError::TooLarge { .. })
    ));
}

#[test]
fn what_has_no_value_is_named() {
    let mut blob = Blob::new();
    let forward = blob.add("later", 7, 0, 0, &[]);
    let prototype = blob.add("", 13, 0, 0, &[]);
    let function = blob.add("run", 12, 0, prototype, &[]);
    let empty = blob.structure("empty", 0, &[]);
    let int = blob.int("int", 4, 1);
    let zero = blob.array(int, 0);
    let big = blob.structure("big", 4, &[("x", int, 32)]);
    let nowhere = blob.add("t", 8, 0, 99, &[]);
    let btf = blob.btf();
    let error = |id| btf.layout(id).expect_err("no value").to_string();
    assert_eq!(error(0), "void is a void, which has no value");
    assert_eq!(
        error(forward),
        "later is a forward declaration, which has no value"
    );
    assert_eq!(error(function), "run is a function, which has no value");
    assert_eq!(error(empty), "empty has no size");
    assert_eq!(error(zero), "an unnamed array has no size");
    assert_eq!(error(big), "member x does not fit into big");
    assert_eq!(error(nowhere), "there is no BTF type 99");
}

#[test]
fn bitfields_from_before_there_was_a_flag() {
    let mut blob = Blob::new();
    // An integer of 4 bytes that uses 5 bits, 2 bits after the member's place.
    let narrow = blob.add("int", 1, 0, 4, &[1 << 24 | 2 << 16 | 5]);
    let record = blob.structure("s", 4, &[("x", narrow, 8)]);
    let layout = blob.btf().layout(record).expect("a layout");
    let Shape::Struct(members) = layout.shape else {
        panic!("a struct")
    };
    assert_eq!((members[0].bit_offset, members[0].bitfield), (10, Some(5)));
}

#[test]
fn characters_of_both_compilers() {
    let mut blob = Blob::new();
    let shapes = [
        ("char", 1, Shape::Char),
        ("char", 0, Shape::Char),
        ("char", 2, Shape::Char),
        ("signed char", 3, Shape::Int { signed: true }),
        ("unsigned char", 2, Shape::Int { signed: false }),
        ("_Bool", 4, Shape::Bool),
    ];
    let ids = shapes
        .clone()
        .map(|(name, encoding, _)| blob.int(name, 1, encoding));
    let btf = blob.btf();
    for (id, (name, _, shape)) in ids.into_iter().zip(shapes) {
        assert_eq!(
            btf.layout(id),
            Ok(Layout {
                size: 1,
                shape,
                render: None
            }),
            "{name}"
        );
    }
}

#[test]
fn small_enums_compare_in_their_own_size() {
    let mut blob = Blob::new();
    let name = blob.string("NONE");
    let signed = blob.add("s", 6, 1 | 1 << 31, 1, &[name, u32::MAX]);
    let unsigned = blob.add("u", 6, 1, 1, &[name, u32::MAX]);
    let wide = blob.add("w", 19, 1, 8, &[name, 2, 1]);
    let btf = blob.btf();
    let value = |id| match btf.layout(id).expect("a layout").shape {
        Shape::Enum { variants, .. } => variants[0].value,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [signed, unsigned, wide].map(value),
        [u64::MAX, 0xff, 0x1_0000_0002]
    );
}

/// clang before 15 has no other kind for large values, and cuts them to 32 bits: 2^32 would get the
/// name of 0.
#[test]
fn wide_enums_whose_values_are_cut_have_no_names() {
    let mut blob = Blob::new();
    let names = ["NONE", "LARGE"].map(|name| blob.string(name));
    let cut = blob.add("e", 6, 2, 8, &[names[0], 7, names[1], 0]);
    let layout = blob.btf().layout(cut).expect("a layout");
    assert_eq!(
        layout.shape,
        Shape::Enum {
            signed: false,
            variants: Vec::new()
        }
    );
}
