use super::*;

fn member(bit_offset: usize, bitfield: Option<u8>, layout: Layout) -> Member {
    Member {
        name: "m".into(),
        bit_offset,
        bitfield,
        layout,
    }
}

fn record(size: usize, member: Member) -> Plan<String> {
    Plan::new(
        &Layout {
            size,
            shape: Shape::Struct(vec![member]),
            render: None,
        },
        str::to_owned,
    )
}

#[test]
fn what_reaches_outside_becomes_a_blob() {
    assert!(matches!(
        record(4, member(0, None, Layout::unsigned(4))),
        Plan::Struct(_)
    ));
    assert!(matches!(
        record(4, member(8, None, Layout::unsigned(4))),
        Plan::Blob { size: 4 }
    ));
    assert!(matches!(
        record(1, member(5, Some(4), Layout::unsigned(4))),
        Plan::Blob { size: 1 }
    ));
    let element = Box::new(Layout::unsigned(4));
    let array = Layout {
        size: 7,
        shape: Shape::Array { element, len: 2 },
        render: None,
    };
    assert!(matches!(
        Plan::new(&array, str::to_owned),
        Plan::Blob { size: 7 }
    ));
}

#[test]
fn a_rendering_that_does_not_fit_is_left_out() {
    let tagged = |size| Layout {
        render: Some(Render::Ipv4),
        ..Layout::unsigned(size)
    };
    assert!(matches!(Plan::new(&tagged(4), str::to_owned), Plan::Ipv4));
    let plan = Plan::new(&tagged(2), str::to_owned);
    assert!(matches!(
        plan,
        Plan::Scalar {
            kind: Scalar::Unsigned,
            size: 2
        }
    ));
}

#[test]
fn of_several_names_for_one_value_the_first_is_shown() {
    let variants = [("B", 1), ("A", 0), ("C", 1)].map(|(name, value)| crate::layout::EnumVariant {
        name: name.into(),
        value,
    });
    let shape = Shape::Enum {
        signed: false,
        variants: variants.into(),
    };
    let plan = Plan::new(
        &Layout {
            size: 1,
            shape,
            render: None,
        },
        str::to_owned,
    );
    let Plan::Scalar {
        kind: Scalar::Enum { variants, .. },
        ..
    } = plan
    else {
        panic!("{plan:?}")
    };
    assert_eq!(
        variants,
        [(0, "A".to_owned()), (1, "B".into()), (1, "C".into())]
    );
}
