use serde_json::json;

use super::*;
use crate::layout::EnumVariant;

fn of(shape: Shape, size: usize) -> Layout {
    Layout {
        size,
        shape,
        render: None,
    }
}

fn rendered_as(render: Render, size: usize) -> Layout {
    Layout {
        render: Some(render),
        ..of(Shape::Int { signed: false }, size)
    }
}

fn written(layout: &Layout, value: &Value) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; layout.size];
    write(layout, value, &mut bytes).map(|()| bytes)
}

#[test]
fn values_are_written_as_documents_render_them() {
    let char = || of(Shape::Char, 1);
    let text = of(
        Shape::Array {
            element: Box::new(char()),
            len: 4,
        },
        4,
    );
    let variants = vec![EnumVariant {
        name: "ON".to_owned(),
        value: 3,
    }];
    for (layout, value, bytes) in [
        (
            of(Shape::Int { signed: false }, 4),
            json!(100),
            vec![100, 0, 0, 0],
        ),
        (
            of(Shape::Int { signed: true }, 2),
            json!(-2),
            vec![254, 255],
        ),
        (
            of(Shape::Int { signed: false }, 8),
            json!(u64::MAX),
            vec![255; 8],
        ),
        (
            of(Shape::Int { signed: false }, 2),
            json!("0x0102"),
            vec![2, 1],
        ),
        (of(Shape::Bool, 1), json!(true), vec![1]),
        (
            of(
                Shape::Enum {
                    signed: false,
                    variants,
                },
                4,
            ),
            json!("ON"),
            vec![3, 0, 0, 0],
        ),
        (text, json!("ab"), vec![b'a', b'b', 0, 0]),
        (
            rendered_as(Render::Ipv4, 4),
            json!("192.0.2.1"),
            vec![192, 0, 2, 1],
        ),
        (rendered_as(Render::Be16, 2), json!(443), vec![1, 187]),
        (
            rendered_as(Render::Mac, 6),
            json!("02:00:00:00:00:0a"),
            vec![2, 0, 0, 0, 0, 10],
        ),
        (of(Shape::Opaque, 2), json!("0xa1b2"), vec![0xa1, 0xb2]),
    ] {
        assert_eq!(written(&layout, &value), Ok(bytes), "{value}");
    }
}

#[test]
fn fields_that_are_left_out_stay() {
    let member = |name: &str, bit_offset, bitfield, size| Member {
        name: name.to_owned(),
        bit_offset,
        bitfield,
        layout: of(Shape::Int { signed: false }, size),
    };
    let layout = of(
        Shape::Struct(vec![member("a", 0, None, 4), member("b", 36, Some(3), 4)]),
        8,
    );
    let mut bytes = vec![9; 8];
    write(&layout, &json!({ "b": 5 }), &mut bytes).unwrap();
    assert_eq!(bytes, [9, 9, 9, 9, 0b0101_1001, 9, 9, 9]);
    let refused = write(&layout, &json!({ "b": 8 }), &mut bytes).unwrap_err();
    assert!(
        refused.contains("b: 8 does not fit; it has 3 bits"),
        "{refused}"
    );
    let unknown = write(&layout, &json!({ "c": 8 }), &mut bytes).unwrap_err();
    assert_eq!(unknown, "there is no field c; known are a, b");
}

#[test]
fn values_of_other_types_and_ranges_are_refused() {
    for (layout, value, words) in [
        (
            of(Shape::Int { signed: false }, 1),
            json!(256),
            "a number from 0 to 255",
        ),
        (
            of(Shape::Int { signed: true }, 1),
            json!(128),
            "a number from -128 to 127",
        ),
        (
            of(Shape::Int { signed: false }, 4),
            json!("x"),
            "a number from 0 to 4294967295",
        ),
        (of(Shape::Int { signed: false }, 4), json!(1.5), "a number"),
        (of(Shape::Bool, 1), json!(1), "true or false"),
        (rendered_as(Render::Ipv4, 4), json!("::1"), "an address"),
        (rendered_as(Render::Be16, 2), json!(65536), "0 to 65535"),
        (
            of(
                Shape::Array {
                    element: Box::new(of(Shape::Bool, 1)),
                    len: 2,
                },
                2,
            ),
            json!([true]),
            "a list of 2 values",
        ),
        (of(Shape::Opaque, 2), json!("0xa1"), "0x and 4 digits"),
    ] {
        let refused = written(&layout, &value).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}
