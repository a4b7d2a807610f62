use twinprobe_ebpf_common::{EnumVariant, Layout, Render, Shape};

use super::*;
use crate::encode::json::Json;
use crate::encode::sink::DocumentSink as _;

fn shown(layout: &Layout, bytes: &[u8]) -> String {
    let context = Context {
        boot_time_ns: 1,
        interfaces: [(2, "eth0".to_owned())].into(),
        ..Context::default()
    };
    let mut json = Json::default();
    Decoder::new(&context).value(&Plan::new(layout, Json::label), bytes, &mut json);
    String::from_utf8(json.buffer().clone()).expect("UTF-8")
}

#[test]
fn names_and_times_are_shown_where_there_are_any() {
    let tagged = |render, size| Layout {
        render: Some(render),
        ..Layout::unsigned(size)
    };
    assert_eq!(
        shown(&tagged(Render::Ifindex, 4), &[2, 0, 0, 0]),
        "\"eth0\""
    );
    assert_eq!(shown(&tagged(Render::Ifindex, 4), &[3, 0, 0, 0]), "3");
    let time = "\"1970-01-01T00:00:00.000000008Z\"";
    assert_eq!(
        shown(&tagged(Render::Ktime, 8), &[7, 0, 0, 0, 0, 0, 0, 0]),
        time
    );
    let flags = [0x12, 0].map(|flags| shown(&tagged(Render::TcpFlags, 4), &[flags, 0, 0, 0]));
    assert_eq!(flags, ["\"SYN|ACK\"", "0"]);
    let variants = vec![EnumVariant {
        name: "OPEN".into(),
        value: 1,
    }];
    let state = Layout {
        size: 1,
        shape: Shape::Enum {
            signed: true,
            variants,
        },
        render: None,
    };
    assert_eq!(
        (shown(&state, &[1]), shown(&state, &[0xff])),
        ("\"OPEN\"".into(), "-1".into())
    );
}

fn key(layout: &Layout, bytes: &[u8]) -> String {
    let names = [(2, "eth0"), (3, "eth0"), (4, "5"), (5, "lan"), (6, "a#7")];
    let interfaces = names.map(|(index, name)| (index, name.to_owned())).into();
    let (context, mut json) = (
        Context {
            boot_time_ns: 1,
            interfaces,
            ..Context::default()
        },
        Json::default(),
    );
    Decoder::new(&context).key(&KeyPlan::new(layout, Json::label), bytes, &mut json);
    String::from_utf8(json.buffer().clone()).expect("UTF-8")
}

#[test]
fn keys_show_what_values_leave_out() {
    let shaped = |size, shape| Layout {
        size,
        shape,
        render: None,
    };
    let text = |len| Shape::Array {
        element: Box::new(shaped(1, Shape::Char)),
        len,
    };
    assert_eq!(key(&shaped(4, text(4)), b"a\0b\0"), r#""a\\x00b""#);
    assert_eq!(shown(&shaped(4, text(4)), b"a\0b\0"), r#""a""#);
    assert_eq!(key(&shaped(4, text(4)), b"a\xff\0\0"), r#""a\\xff""#);
    assert_eq!(
        (
            key(&shaped(1, Shape::Bool), &[1]),
            key(&shaped(1, Shape::Bool), &[2])
        ),
        ("true".into(), "2".into())
    );
    for (float, expected) in [
        (0.5_f32, "0.5"),
        (-0.0, "\"-0.0\""),
        (f32::NEG_INFINITY, "\"-Infinity\""),
        (f32::from_bits(0x7fc0_0001), "\"NaN:0x7fc00001\""),
    ] {
        assert_eq!(
            key(&shaped(4, Shape::Float), &float.to_le_bytes()),
            expected
        );
    }
    let index = Layout {
        render: Some(Render::Ifindex),
        ..Layout::unsigned(4)
    };
    let names = [2, 3, 4, 5, 6, 7].map(|number: u8| key(&index, &[number, 0, 0, 0]));
    assert_eq!(
        names,
        [
            "\"eth0#2\"",
            "\"eth0#3\"",
            "\"5#4\"",
            "\"lan\"",
            "\"a#7#6\"",
            "7"
        ]
    );
    let member = twinprobe_ebpf_common::Member {
        name: "a".into(),
        bit_offset: 0,
        bitfield: None,
        layout: Layout::unsigned(1),
    };
    let padded = shaped(4, Shape::Struct(vec![member]));
    assert_eq!(key(&padded, &[7, 0, 0, 0]), r#"{"a":7}"#);
    assert_eq!(
        key(&padded, &[7, 0, 9, 0]),
        r#"{"a":7,"padding":"0x000900"}"#
    );
    let list = shaped(
        8,
        Shape::Array {
            element: Box::new(padded),
            len: 2,
        },
    );
    assert_eq!(
        key(&list, &[7, 0, 0, 0, 8, 0, 0, 1]),
        "\"0x0700000008000001\""
    );
}

#[test]
fn numbers_wider_than_any_format_are_shown_in_hex() {
    assert_eq!(
        shown(&Layout::unsigned(16), &[1; 16]),
        format!("\"0x{}\"", "01".repeat(16))
    );
    assert_eq!(
        shown(&Layout::unsigned(8), &[0xff; 8]),
        u64::MAX.to_string()
    );
}

#[test]
fn floats_of_4_bytes_are_not_as_long_as_the_same_numbers_of_8() {
    let float = |size| Layout {
        size,
        shape: Shape::Float,
        render: None,
    };
    assert_eq!(shown(&float(4), &0.1_f32.to_le_bytes()), "0.1");
    assert_eq!(
        shown(&float(8), &f64::from(0.1_f32).to_le_bytes()),
        "0.10000000149011612"
    );
}
