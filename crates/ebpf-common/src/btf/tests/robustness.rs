//! Tests that no input makes the parser panic, and that accepted input can be resolved or is
//! refused.

use proptest::collection::vec;
use proptest::prelude::*;

use super::builder::Blob;
use super::clang;
use crate::btf::blob::Btf;

/// Calls every query on a blob.
fn exercise(blob: &[u8]) {
    let Ok(btf) = Btf::parse(blob) else { return };
    for id in (0..3).chain(btf.type_ids()).chain([u32::MAX]) {
        if let Ok(layout) = btf.layout(id) {
            assert_eq!(btf.size_of(id), Ok(layout.size));
        }
        let _ = btf.size_of(id);
    }
    for section in [".maps", ".bss", ""] {
        for variable in btf.section_variables(section) {
            let _ = btf.map_definition(&variable.name);
        }
    }
}

/// A type with any numbers in it; most refer to existing types.
fn any_type() -> impl Strategy<Value = (u32, u32, u32, Vec<u32>)> {
    let number =
        || prop_oneof![8 => 0_u32..12, 1 => any::<u32>(), 1 => Just(8_u32), 1 => Just(32_u32)];
    (
        0_u32..21,
        0_u32..5,
        number(),
        vec(number(), 20),
        any::<bool>(),
    )
        .prop_map(|(kind, count, size, mut rest, flag)| {
            let words = match kind {
                1 | 14 | 17 => 1,
                3 => 3,
                4 | 5 | 15 | 19 => 3 * count,
                6 | 13 => 2 * count,
                _ => 0,
            };
            rest.truncate(words as usize);
            (kind, count | u32::from(flag) << 31, size, rest)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes(mut blob in vec(any::<u8>(), 0..200), header in any::<bool>()) {
        if header && blob.len() >= 4 {
            blob[..4].copy_from_slice(&[0x9f, 0xeb, 1, 0]);
        }
        exercise(&blob);
    }

    #[test]
    fn random_types(types in vec(any_type(), 1..12)) {
        let mut blob = Blob::new();
        blob.string("a\0.maps");
        for (kind, info, size, rest) in types {
            blob.add("key", kind, info, size, &rest);
        }
        exercise(&blob.bytes());
    }

    #[test]
    fn damaged_blobs(damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut blob = clang::fixture().to_vec();
        for (index, byte) in damage {
            let index = index.index(blob.len());
            blob[index] = byte;
        }
        exercise(&blob);
    }
}

/// A name shared by every member must not be copied without limit.
#[test]
fn endless_names_are_refused() {
    let mut blob = Blob::new();
    let int = blob.int("int", 4, 1);
    let record = blob.structure(&"x".repeat(100), 4, &[(&"y".repeat(100_000), int, 0)]);
    assert!(blob.btf().layout(record).is_err());
}
