//! Tests of the BTF that clang writes for the constructs that probes use.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::btf::blob::Btf;
use crate::btf::error::BtfError;
use crate::btf::section::MapTypes;
use crate::btf::types::{BtfKind, Type};
use crate::layout::{Layout, Member, Render, Shape};

const SOURCE: &str = r#"
#define TAG(x) __attribute__((btf_decl_tag(#x)))
#define SEC(x) __attribute__((section(x), used))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 ip4 TAG(ipv4);
typedef u8 mac_t[6] TAG(mac);
enum state { NEW, OPEN = 5, GONE };
enum sign { MINUS = -1, PLUS = 1 };
struct key { ip4 src; ip4 dst TAG(hex); u16 port TAG(be16) TAG(ie("sourceTransportPort")); u8 proto; };
struct value {
    const volatile u64 packets;
    u32 low : 3;
    int high : 7;
    enum state state : 4;
    _Bool seen;
    char name[16];
    signed char small;
    struct { u32 inner TAG(ie("tcpWindowSize")); union { u32 word; u8 bytes[4]; }; };
    union { u64 number; double real; } either;
    u16 matrix[2][3];
    mac_t mac;
    u8 text[8] TAG(string);
    enum state now;
    enum sign sign;
    void *where;
    unsigned __int128 wide;
    u64 time TAG(ktime) TAG(other) TAG(ie(flowStartMilliseconds));
    u32 marker[0];
    u32 last;
};
struct packet { u32 len; u8 data[]; };
struct outer { u32 number; struct packet packet; };
struct wrapped { u32 number; union { u32 word; u8 bytes[0]; }; };
struct { __uint(type, 1); __uint(max_entries, 1024); __type(key, struct key); __type(value, struct value); }
    flows SEC(".maps");
struct { __uint(type, 22); __uint(max_entries, 8); __type(value, u32); } addresses SEC(".maps") TAG(ipv4);
u64 total;
static u32 last TAG(ifindex);
struct packet *packet SEC(".bss.records");
struct outer *outer SEC(".bss.records");
struct wrapped *wrapped SEC(".bss.records");
u8 grid[4][8] SEC(".bss.grid");
SEC("xdp") int count(void *context) { last += total + grid[1][2] + packet->len + outer->number + wrapped->number; total++; return 2; }
"#;

/// The `.BTF` section of [`SOURCE`].
pub(super) fn fixture() -> &'static [u8] {
    static FIXTURE: LazyLock<Vec<u8>> = LazyLock::new(|| section(&compile(SOURCE), ".BTF"));
    &FIXTURE
}

fn compile(source: &str) -> Vec<u8> {
    let mut clang = Command::new("clang")
        .args([
            "-target", "bpf", "-g", "-O2", "-c", "-x", "c", "-", "-o", "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clang is on the PATH");
    let mut stdin = clang.stdin.take().expect("stdin is a pipe");
    stdin
        .write_all(source.as_bytes())
        .expect("clang reads its input");
    drop(stdin);
    let output = clang.wait_with_output().expect("clang ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// The content of a section of a 64-bit little-endian ELF file.
fn section(elf: &[u8], name: &str) -> Vec<u8> {
    let number = |offset: usize, len: usize| {
        elf[offset..][..len]
            .iter()
            .rev()
            .fold(0, |number, &byte| number << 8 | usize::from(byte))
    };
    let (table, entry, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let header = |index: usize| table + index * entry;
    let names = number(header(number(0x3e, 2)) + 0x18, 8);
    let wanted = |&index: &usize| {
        elf[names + number(header(index), 4)..]
            .strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest[0] == 0)
    };
    let found = header((0..count).find(wanted).expect("the section exists"));
    elf[number(found + 0x18, 8)..][..number(found + 0x20, 8)].to_vec()
}

fn btf() -> Btf {
    Btf::parse(fixture()).expect("clang writes valid BTF")
}

fn types(btf: &Btf, map: &str) -> MapTypes {
    btf.map_definition(map).expect("the map is defined")
}

fn members(layout: Layout) -> Vec<Member> {
    match layout.shape {
        Shape::Struct(members) => members,
        other => panic!("not a struct: {other:?}"),
    }
}

fn find<'a>(members: &'a [Member], name: &str) -> &'a Member {
    members
        .iter()
        .find(|member| member.name == name)
        .expect("the member exists")
}

#[test]
fn keys_have_their_tags() {
    let btf = btf();
    let key = btf
        .layout(types(&btf, "flows").key.expect("a key"))
        .expect("a layout");
    assert_eq!(key.size, 12);
    let tagged = |name: &str, offset, size, render| Member {
        name: name.into(),
        bit_offset: offset,
        bitfield: None,
        layout: Layout {
            render,
            ..Layout::unsigned(size)
        },
    };
    assert_eq!(
        members(key),
        [
            tagged("src", 0, 4, Some(Render::Ipv4)),
            tagged("dst", 32, 4, Some(Render::Hex)),
            tagged("port", 64, 2, Some(Render::Be16)),
            tagged("proto", 80, 1, None),
        ]
    );
}

#[test]
fn elements_are_named_by_tags_beside_renderings() {
    let btf = btf();
    let types = types(&btf, "flows");
    let elements = |id: Option<u32>| btf.elements(id.unwrap()).into_iter().collect::<Vec<_>>();
    let named = |field: &str, element: &str| (field.to_owned(), element.to_owned());
    assert_eq!(elements(types.key), [named("port", "sourceTransportPort")]);
    assert_eq!(
        elements(types.value),
        [
            named("inner", "tcpWindowSize"),
            named("time", "flowStartMilliseconds")
        ]
    );
    let unknown: Vec<&str> = btf.unknown_tags().map(|(tag, _)| tag).collect();
    assert_eq!(unknown, ["other"]);
}

#[test]
fn values_have_every_shape() {
    let btf = btf();
    let id = types(&btf, "flows").value.expect("a value");
    let layout = btf.layout(id).expect("a layout");
    assert_eq!(btf.size_of(id), Ok(layout.size));
    let members = members(layout);
    let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "packets low high state seen name small inner word bytes either matrix mac text now sign where wide \
         time marker last"
    );
    let get = |name| find(&members, name);
    let bitfield = |name| (get(name).bit_offset, get(name).bitfield);
    assert_eq!(
        ["low", "high", "state"].map(bitfield),
        [(64, Some(3)), (67, Some(7)), (74, Some(4))]
    );
    assert_eq!(get("high").layout.shape, Shape::Int { signed: true });
    assert_eq!(get("packets").layout, Layout::unsigned(8));
    assert_eq!(get("seen").layout.shape, Shape::Bool);
    assert_eq!(get("small").layout.shape, Shape::Int { signed: true });
    assert_eq!(
        get("word").bit_offset,
        get("inner").bit_offset + 32,
        "lifted out of the anonymous struct"
    );
    assert_eq!(
        get("bytes").bit_offset,
        get("word").bit_offset,
        "lifted out of the anonymous union"
    );
    assert_eq!(
        get("where").layout,
        Layout {
            render: Some(Render::Hex),
            ..Layout::unsigned(8)
        }
    );
    assert_eq!(get("wide").layout, Layout::unsigned(16));
    assert_eq!(get("time").layout.render, Some(Render::Ktime));

    let array = |name| match &get(name).layout {
        Layout {
            size,
            shape: Shape::Array { element, len },
            render,
        } => (*size, &**element, *len, *render),
        other => panic!("not an array: {other:?}"),
    };
    let char = Layout {
        size: 1,
        shape: Shape::Char,
        render: None,
    };
    assert_eq!(array("name"), (16, &char, 16, None));
    assert_eq!(
        array("mac"),
        (6, &Layout::unsigned(1), 6, Some(Render::Mac))
    );
    assert_eq!(
        array("text"),
        (8, &Layout::unsigned(1), 8, Some(Render::String))
    );
    assert_eq!(
        array("marker"),
        (0, &Layout::unsigned(4), 0, None),
        "something follows it"
    );
    let (size, row, len, _) = array("matrix");
    assert_eq!((size, row.size, len), (12, 6, 2));

    match &get("either").layout.shape {
        Shape::Union(members) => {
            assert_eq!(members[0].layout, Layout::unsigned(8));
            assert_eq!(members[1].layout.shape, Shape::Float);
        }
        other => panic!("not a union: {other:?}"),
    }
    match &get("now").layout.shape {
        Shape::Enum { variants, .. } => {
            let variants: Vec<_> = variants
                .iter()
                .map(|v| (v.name.as_str(), v.value))
                .collect();
            assert_eq!(variants, [("NEW", 0), ("OPEN", 5), ("GONE", 6)]);
        }
        other => panic!("not an enum: {other:?}"),
    }
}

#[test]
fn maps_without_keys_can_be_tagged_themselves() {
    let btf = btf();
    let types = types(&btf, "addresses");
    assert_eq!((types.key, types.render), (None, Some(Render::Ipv4)));
    assert_eq!(
        btf.layout(types.value.expect("a value")),
        Ok(Layout::unsigned(4))
    );
    assert_eq!(btf.map_definition("nothing"), None);
}

#[test]
fn globals_are_found_by_section() {
    let btf = btf();
    let variables = btf.section_variables(".bss");
    let names: Vec<_> = variables
        .iter()
        .map(|variable| (variable.name.as_str(), variable.size))
        .collect();
    assert_eq!(names, [("total", 8), ("last", 4)]);
    assert_eq!(
        btf.layout(variables[1].type_id).expect("a layout").render,
        Some(Render::Ifindex)
    );
    let grid = &btf.section_variables(".bss.grid")[0];
    assert_eq!((grid.size, btf.size_of(grid.type_id)), (32, Ok(32)));
    assert_eq!(btf.section_variables(".data"), []);
}

#[test]
fn flexible_tails_are_refused() {
    let btf = btf();
    for (name, owner, member) in [
        ("packet", "packet", "data"),
        ("outer", "packet", "data"),
        ("wrapped", "an unnamed union", "bytes"),
    ] {
        let is_struct = |id| {
            matches!(
                btf.get(id),
                Ok(Type {
                    kind: BtfKind::Struct { .. },
                    ..
                })
            )
        };
        let id = btf
            .type_ids()
            .find(|&id| btf.type_name(id) == name && is_struct(id));
        let error = btf
            .layout(id.expect("the type exists"))
            .expect_err("a flexible tail");
        assert_eq!(
            error,
            BtfError::Flexible {
                name: owner.into(),
                member: member.into()
            }
        );
    }
}

#[test]
fn types_are_found_by_their_c_names() {
    let btf = btf();
    for name in btf.struct_names() {
        let id = btf.named_type(&name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(btf.named_type(name.trim_start_matches("struct ")), Some(id));
    }
    for name in [
        "u32",
        "ip4",
        "unsigned int",
        " unsigned  int ",
        "enum state",
        "state",
        "key",
    ] {
        assert!(btf.named_type(name).is_some(), "{name}");
    }
    for name in [
        "",
        "struct",
        "struct u32",
        "union key",
        "no_such_type",
        "struct no_such_type",
    ] {
        assert_eq!(btf.named_type(name), None, "{name}");
    }
}
