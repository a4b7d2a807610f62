//! A document with every shape and rendering, byte for byte. `UPDATE_GOLDEN=1` rewrites the files.

mod reference;
mod support;

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use support::{
    Document, MetricTable, array, bits, char_array, encoded, enumeration, member, metric, packed,
    shaped, signed, tagged, unsigned,
};
use twinprobe_ebpf_common::{
    Aggregation, Completeness, Context, DocumentOrigin, EventKind, Format, Layout, Losses, MapKind,
    RawTable, Render, Shape, TableLayout, Window,
};
use twinprobe_exporter::Metric;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/metrics.xsd");

#[test]
fn every_shape() {
    check("shapes", &document(Some(window()), shapes(), Vec::new()));
}

#[test]
fn every_rendering() {
    check(
        "renderings",
        &document(Some(window()), Vec::new(), renderings()),
    );
}

#[test]
fn every_map_kind_and_aggregation() {
    check("kinds", &document(Some(window()), kinds(), aggregations()));
}

#[test]
fn how_complete_maps_are() {
    check(
        "completeness",
        &document(Some(window()), completeness(), Vec::new()),
    );
}

#[test]
fn windows_that_were_lost() {
    let window = Window {
        lost_windows: 2,
        ..window()
    };
    check("lost", &document(Some(window), Vec::new(), Vec::new()));
}

#[test]
fn a_clock_that_was_set() {
    let window = Window {
        clock_step_ns: Some(-3_600_000_000_000),
        ..window()
    };
    check("stepped", &document(Some(window), Vec::new(), Vec::new()));
}

/// The window has no duration, because an earlier version has stored it.
#[test]
fn a_window_without_a_duration() {
    let stored = r#"{"seq":3,"start":"2026-11-21T10:00:00.000000000Z","end":"2026-11-21T10:00:10.000000000Z","quiesce_us":71,"lost_windows":0}"#;
    let window: Window = serde_json::from_str(stored).expect("a window");
    check("undated", &document(Some(window), Vec::new(), Vec::new()));
}

#[test]
fn numbers_that_are_not_those_of_the_wire() {
    let why = "ingress: eth0 takes VLAN tags out: `ethtool -K eth0 rxvlan off`, \"or\" use <TC>";
    let document = document(Some(window()), Vec::new(), Vec::new());
    check(
        "approximate",
        &Document {
            approximate: Some(why.to_owned()),
            ..document
        },
    );
}

#[test]
fn nothing_to_show() {
    check("empty", &document(None, Vec::new(), Vec::new()));
}

#[test]
fn where_the_numbers_come_from() {
    let rack = unsigned(1);
    let sampled = metric(
        "sampled",
        MapKind::Hash,
        None,
        [packed([("rack", rack)]), unsigned(1)],
        &[(&[7], &[1])],
    );
    let sampled = MetricTable {
        metric: Arc::new(
            Metric::clone(&sampled.metric).with(|head| head.sample = NonZeroU32::new(100)),
        ),
        ..sampled
    };
    let labels = [("note", "<\"\\\n\u{e4}&'"), ("rack", "7")]
        .map(|(name, value)| (name.into(), value.into()));
    let origin = DocumentOrigin {
        node: "gw-1 \"a\"".into(),
        instance: "4f0c".into(),
        labels: labels.into(),
    };
    let document = document(Some(window()), vec![sampled], Vec::new());
    check(
        "origin",
        &Document {
            origin: Some(origin.clone()),
            ..document.clone()
        },
    );
    check(
        "unlabelled",
        &Document {
            origin: Some(DocumentOrigin {
                labels: [].into(),
                ..origin
            }),
            ..document
        },
    );
}

fn check(name: &str, document: &Document) {
    let context = Context {
        boot_time_ns: 1_795_255_200_000_000_000,
        interfaces: [(2, "eth0".to_owned()), (3, "a<b\"".to_owned())].into(),
        ..Context::default()
    };
    for format in Format::ALL {
        let actual = encoded(document, &context, format);
        let path = Path::new(DIRECTORY)
            .join(name)
            .with_extension(extension(format));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &actual).expect("the golden file can be written");
        }
        let golden = fs::read_to_string(&path).expect("there is a golden file");
        assert_eq!(actual, golden, "{} differs", path.display());
        match format {
            Format::Json => {
                drop(serde_json::from_str::<serde_json::Value>(&actual).expect("valid JSON"));
            }
            Format::Xml => validate(&path),
            Format::OpenMetrics => drop(reference::parse(&[&actual])),
            // Read by promtool in tests/tests/deploy.
            Format::Prometheus => {}
        }
    }
}

const fn extension(format: Format) -> &'static str {
    match format {
        Format::OpenMetrics => "prom",
        Format::Prometheus => "txt",
        other => other.name(),
    }
}

fn validate(path: &Path) {
    let output = Command::new("xmllint")
        .args(["--noout", "--nonet", "--schema", SCHEMA])
        .arg(path)
        .output()
        .expect("xmllint runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn window() -> Window {
    Window {
        seq: 3,
        start: "2026-11-21T10:00:00.000000000Z".into(),
        end: "2026-11-21T10:00:10.000000000Z".into(),
        duration_ns: Some(10_000_000_123),
        clock_step_ns: None,
        quiesce_us: 71,
        lost_windows: 0,
    }
}

fn document(
    window: Option<Window>,
    ingress: Vec<MetricTable>,
    egress: Vec<MetricTable>,
) -> Document {
    let interfaces = vec!["eth0".into(), "eth1".into()];
    let probe = "flows".into();
    Document {
        probe,
        origin: None,
        interfaces,
        approximate: None,
        window,
        ingress,
        egress,
    }
}

/// One value under key 0.
fn single(name: &str, value: Layout, bytes: &[u8]) -> MetricTable {
    metric(
        name,
        MapKind::Array,
        None,
        [unsigned(4), value],
        &[(&[0; 4], bytes)],
    )
}

/// Maps with two entries.
fn completeness() -> Vec<MetricTable> {
    let of = |name: &str, kind, completeness| {
        let entries: [(&[u8], &[u8]); 2] = [(&[1, 0, 0, 0], &[5]), (&[2, 0, 0, 0], &[6])];
        let MetricTable { metric, table } =
            metric(name, kind, None, [unsigned(4), unsigned(1)], &entries);
        MetricTable {
            metric: Arc::new(Metric::clone(&metric).with(|head| head.completeness = completeness)),
            table,
        }
    };
    let bound = |max| Completeness {
        max_entries: Some(max),
        ..Completeness::default()
    };
    let losses = |shown, total| Some(Losses { shown, total });
    let ring = single("ring", Layout::opaque(0), &[]);
    let kind = MapKind::Global;
    let events = Metric::clone(&ring.metric).with(|head| {
        head.events = Some(EventKind::Ringbuf);
        head.completeness.losses = losses(7, 9);
        head.layout = Arc::new(TableLayout {
            kind,
            ..TableLayout::clone(&head.layout)
        });
    });
    vec![
        of("roomy", MapKind::Hash, bound(8)),
        of(
            "counted",
            MapKind::LruHash,
            Completeness {
                losses: losses(0, 3),
                ..bound(8)
            },
        ),
        of("full", MapKind::Hash, bound(2)),
        // Some entries had no room, and other entries have been deleted since.
        of(
            "was_full",
            MapKind::Hash,
            Completeness {
                losses: losses(1, 4),
                ..bound(8)
            },
        ),
        of(
            "sum",
            MapKind::Hash,
            Completeness {
                entries_used: Some(1),
                ..bound(1)
            },
        ),
        of("array", MapKind::Array, bound(2)),
        MetricTable {
            metric: Arc::new(events),
            table: RawTable::default(),
        },
    ]
}

fn shapes() -> Vec<MetricTable> {
    let integers = packed([
        ("u8", unsigned(1)),
        ("i8", signed(1)),
        ("u16", unsigned(2)),
        ("i16", signed(2)),
        ("u32", unsigned(4)),
        ("i32", signed(4)),
        ("u64", unsigned(8)),
        ("i64", signed(8)),
        ("u128", unsigned(16)),
        ("i128", signed(16)),
    ]);
    let mut extremes = vec![0xff; integers.size];
    extremes[46..62].copy_from_slice(&(-2_i128).to_le_bytes());
    extremes[30..46].copy_from_slice(&0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10_u128.to_le_bytes());

    let bitfields = shaped(
        8,
        Shape::Struct(vec![
            bits("low", 0, 3, unsigned(4)),
            bits("signed", 3, 5, signed(4)),
            bits("across", 8, 17, unsigned(4)),
            bits("flag", 25, 1, shaped(1, Shape::Bool)),
            bits(
                "state",
                26,
                2,
                enumeration(4, false, &[("OPEN", 1), ("CLOSED", 2)]),
            ),
            member("plain", 4, unsigned(4)),
        ]),
    );
    let packed_bits = (0b101_u32 | 0b11110 << 3 | 0x1abcd << 8 | 1 << 25 | 2 << 26).to_le_bytes();

    let nested = packed([
        (
            "inner",
            packed([
                ("a", unsigned(1)),
                ("$b", packed([("metrics", unsigned(2))])),
            ]),
        ),
        (
            "list",
            array(packed([("x", unsigned(1)), ("y", unsigned(1))]), 2),
        ),
        ("matrix", array(array(unsigned(1), 2), 2)),
        ("tail", array(unsigned(8), 0)),
    ]);
    let union = shaped(
        4,
        Shape::Union(vec![
            member("word", 0, unsigned(4)),
            member("bytes", 0, array(unsigned(1), 4)),
        ]),
    );
    let floats = packed([
        ("single", shaped(4, Shape::Float)),
        ("double", array(shaped(8, Shape::Float), 4)),
    ]);
    let mut numbers = 0.1_f32.to_le_bytes().to_vec();
    for number in [1.0, -1e300, f64::NAN, f64::NEG_INFINITY] {
        numbers.extend_from_slice(&number.to_le_bytes());
    }
    let text = packed([
        ("name", char_array(12)),
        ("one", shaped(1, Shape::Char)),
        ("bad", char_array(4)),
    ]);
    let states = array(
        enumeration(2, true, &[("NONE", -1), ("FIRST", 0), ("ALSO_FIRST", 0)]),
        3,
    );

    vec![
        single("integers", integers, &extremes),
        single(
            "bitfields",
            bitfields,
            &[&packed_bits[..], &[7, 0, 0, 0]].concat(),
        ),
        single("nested", nested, &[1, 2, 0, 3, 4, 5, 6, 7, 8, 9, 10]),
        single("union", union, &[1, 2, 3, 4]),
        single("booleans", array(shaped(1, Shape::Bool), 2), &[0, 1]),
        single("floats", floats, &numbers),
        single("text", text, b"<\"\\\n\x01\xc3\xa4&\0xyzA\xffok\0"),
        single("enums", states, &[0xff, 0xff, 0, 0, 9, 0]),
        single("blob", Layout::opaque(3), &[0xde, 0xad, 0x01]),
    ]
}

fn renderings() -> Vec<MetricTable> {
    use Render::*;
    let address: Vec<u8> = [0x20, 0x01, 0x0d, 0xb8]
        .into_iter()
        .chain([0; 11])
        .chain([1])
        .collect();
    let mapped = [[0; 10].as_slice(), &[0xff, 0xff, 192, 0, 2, 1]].concat();
    let ports = packed([
        ("be16", tagged(Be16, unsigned(2))),
        ("be32", tagged(Be32, unsigned(4))),
        ("be64", tagged(Be64, unsigned(8))),
        ("list", tagged(Be16, array(unsigned(2), 1))),
    ]);
    let hex = packed([
        ("number", tagged(Hex, unsigned(4))),
        ("bytes", tagged(Hex, array(unsigned(1), 3))),
        ("list", tagged(Hex, array(unsigned(2), 2))),
    ]);
    let misfits = packed([
        ("ipv4", tagged(Ipv4, unsigned(2))),
        ("mac", tagged(Mac, array(unsigned(1), 5))),
        ("ktime", tagged(Ktime, unsigned(4))),
        ("string", tagged(String, unsigned(4))),
    ]);
    let flags = shaped(
        4,
        Shape::Struct(vec![
            bits("flags", 0, 12, tagged(Hex, unsigned(4))),
            member("rest", 2, unsigned(2)),
        ]),
    );
    let time = 1_000_000_071_u64.to_le_bytes();
    vec![
        single("ipv4", tagged(Ipv4, unsigned(4)), &[10, 0, 0, 255]),
        single(
            "ipv4_list",
            tagged(Ipv4, array(unsigned(4), 2)),
            &[10, 0, 0, 1, 10, 0, 0, 2],
        ),
        single("ipv6", tagged(Ipv6, array(unsigned(1), 16)), &address),
        single("ipv6_words", tagged(Ipv6, array(unsigned(4), 4)), &address),
        single(
            "ipv6_record",
            tagged(Ipv6, packed([("in6_u", array(unsigned(1), 16))])),
            &address,
        ),
        single("ip", tagged(Ip, array(unsigned(1), 16)), &address),
        single("ip_mapped", tagged(Ip, array(unsigned(1), 16)), &mapped),
        single("ip_short", tagged(Ip, unsigned(4)), &[10, 0, 0, 255]),
        single(
            "mac",
            tagged(Mac, array(unsigned(1), 6)),
            &[2, 0, 0, 0xab, 0, 1],
        ),
        single(
            "mac_list",
            array(tagged(Mac, array(unsigned(1), 6)), 1),
            &[2, 0, 0, 0xab, 0, 1],
        ),
        single(
            "ports",
            ports,
            &[0, 80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 187],
        ),
        single("hex", hex, &[0xef, 0xbe, 0xad, 0, 1, 2, 3, 4, 5, 6, 7]),
        single("string", tagged(String, array(unsigned(1), 4)), b"tcp\0"),
        single("ktime", tagged(Ktime, unsigned(8)), &time),
        single(
            "ifindex",
            tagged(Ifindex, array(unsigned(4), 3)),
            &[2, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0],
        ),
        single(
            "misfits",
            misfits,
            &[1, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 7, 0, 0, 0],
        ),
        single("flags", flags, &[0x34, 0x12, 5, 0]),
    ]
}

fn kinds() -> Vec<MetricTable> {
    let none = Layout::opaque(0);
    let flow = packed([
        ("src", tagged(Render::Ipv4, unsigned(4))),
        ("port", unsigned(2)),
    ]);
    let per_cpu = |n: u8| [&[n, 0, 0, 0, 0, 0, 0, 0][..], &[n + 1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let word = |kind, name| {
        metric(
            name,
            kind,
            None,
            [unsigned(4), unsigned(1)],
            &[(&[7, 0, 0, 0], &[1])],
        )
    };
    let slots = |kind, name| {
        metric(
            name,
            kind,
            None,
            [unsigned(4), unsigned(4)],
            &[(&[7, 0, 0, 0], &per_cpu(1))],
        )
    };
    vec![
        metric(
            "hash",
            MapKind::Hash,
            None,
            [flow, unsigned(8)],
            &[
                (&[10, 0, 0, 1, 80, 0], &[1; 8]),
                (&[10, 0, 0, 2, 81, 0], &[0xff; 8]),
            ],
        ),
        word(MapKind::LruHash, "lru_hash"),
        slots(MapKind::PercpuHash, "percpu_hash"),
        slots(MapKind::LruPercpuHash, "lru_percpu_hash"),
        word(MapKind::LpmTrie, "lpm_trie"),
        word(MapKind::Array, "array"),
        slots(MapKind::PercpuArray, "percpu_array"),
        metric(
            "queue",
            MapKind::Queue,
            None,
            [none.clone(), unsigned(1)],
            &[(&[], &[1]), (&[], &[2])],
        ),
        metric(
            "stack",
            MapKind::Stack,
            None,
            [none.clone(), unsigned(1)],
            &[],
        ),
        metric(
            "global",
            MapKind::Global,
            None,
            [none, unsigned(1)],
            &[(&[], &[5])],
        ),
    ]
}

/// A struct of numbers and an address, folded in each way; the first CPU has seen nothing.
fn aggregations() -> Vec<MetricTable> {
    let value = packed([
        ("delta", signed(4)),
        ("source", tagged(Render::Ipv4, unsigned(4))),
        ("port", tagged(Render::Be16, unsigned(2))),
        ("small", unsigned(1)),
        ("seen", shaped(1, Shape::Bool)),
    ]);
    let mut slots = [0; 32];
    slots[16..28].copy_from_slice(&[0xfd, 0xff, 0xff, 0xff, 10, 0, 0, 1, 1, 1, 200, 1]);
    let mut metrics: Vec<_> = Aggregation::ALL
        .into_iter()
        .map(|agg| {
            let layouts = [unsigned(4), value.clone()];
            metric(
                agg.name(),
                MapKind::PercpuArray,
                Some(agg),
                layouts,
                &[(&[0; 4], &slots)],
            )
        })
        .collect();
    let layouts = [unsigned(4), value];
    metrics.push(metric(
        "all_cpus",
        MapKind::PercpuArray,
        None,
        layouts,
        &[(&[0; 4], &slots)],
    ));
    metrics
}
