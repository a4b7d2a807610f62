//! The meaning of the bytes of a key or a value.

use serde::de::IntoDeserializer as _;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

/// The way to read `size` bytes. [`crate::Btf::layout`] makes layouts from BTF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The number of bytes; for a bitfield, the number of bytes of its declared type.
    pub size: usize,
    /// The meaning of the bytes by their type.
    pub shape: Shape,
    /// The rendering that a `btf_decl_tag` asks for.
    pub render: Option<Render>,
}

/// The meaning of the bytes of a value by its type in C.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Integers of 1, 2, 4, 8 or 16 bytes, and pointers (unsigned).
    Int { signed: bool },
    /// A boolean, which is false if all bytes are zero.
    Bool,
    /// A `char`; an [`Shape::Array`] of it is a string.
    Char,
    /// A float (IEEE 754) of 4 or 8 bytes.
    Float,
    /// Enumerations of 1 to 8 bytes (`enum` and `enum64`).
    Enum {
        signed: bool,
        variants: Vec<EnumVariant>,
    },
    /// A struct with its members in the order of declaration. Members of anonymous structs and
    /// unions are listed among the members of the parent.
    Struct(Vec<Member>),
    /// A union with its members, which share bytes.
    Union(Vec<Member>),
    /// An array of `len` elements. An array of several dimensions has arrays as elements.
    Array { element: Box<Layout>, len: usize },
    /// Bytes of an unknown type, which are shown in hex.
    Opaque,
}

/// A named value of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnumVariant {
    /// The name of the value in C.
    pub name: String,
    /// The bits of the value, sign- or zero-extended to 64 bits.
    pub value: u64,
}

/// A member of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name of the member in C.
    pub name: String,
    /// The number of bits from the start of the enclosing [`Layout`].
    pub bit_offset: usize,
    /// The width of a bitfield, in bits.
    pub bitfield: Option<u8>,
    /// The meaning of the member's bytes; for a bitfield, the meaning of its declared type.
    pub layout: Layout,
}

/// A rendering, which `__attribute__((btf_decl_tag("...")))` on a field, typedef or map variable
/// asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Render {
    /// Four bytes in network order: `10.0.0.1`.
    Ipv4,
    /// Sixteen bytes in network order: `2001:db8::1`; an address that maps an IPv4 address appears
    /// as IPv4.
    Ipv6,
    /// An address of either family: four or sixteen bytes. An address that maps IPv4 is shown as
    /// IPv4.
    Ip,
    /// Six bytes: `02:00:00:00:00:01`.
    Mac,
    /// A number of two bytes in network order.
    Be16,
    /// A number of four bytes in network order.
    Be32,
    /// A number of eight bytes in network order.
    Be64,
    /// Digits in hex: `0x`, and two digits for each byte. A number begins with its highest byte;
    /// other bytes are in the order of memory.
    Hex,
    /// Text up to the first NUL.
    String,
    /// A number of sixteen bytes, shown in decimal; without this rendering it is shown in hex. Sums
    /// that do not fit into 64 bits have this rendering.
    Decimal,
    /// Nanoseconds since boot (`bpf_ktime_get_ns`), shown as a time of day.
    Ktime,
    /// Nanoseconds since 1970, shown as a time of day; zero is "never". Sums convert times of
    /// [`Self::Ktime`] to this form.
    Time,
    /// The index of an interface, shown as its name.
    Ifindex,
    /// The number of a protocol above IP, shown by its name if it has one.
    Protocol,
    /// The flags of a TCP header, shown by their names: `SYN|ACK`.
    TcpFlags,
    /// A struct of an address and the number of its significant bits: `10.0.0.0/8`.
    Prefix,
    /// The slots of an array map that count values by magnitude. Documents also show ranges and
    /// percentiles for them.
    Histogram,
}

impl Render {
    /// All renderings.
    pub const ALL: [Self; 17] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::Ip,
        Self::Mac,
        Self::Be16,
        Self::Be32,
        Self::Be64,
        Self::Hex,
        Self::String,
        Self::Decimal,
        Self::Ktime,
        Self::Time,
        Self::Ifindex,
        Self::Protocol,
        Self::TcpFlags,
        Self::Prefix,
        Self::Histogram,
    ];

    /// Returns the tag that asks for the rendering, and the purpose of the rendering.
    pub const fn tag(self) -> (&'static str, &'static str) {
        match self {
            Self::Ipv4 => ("ipv4", "four bytes"),
            Self::Ipv6 => ("ipv6", "sixteen bytes"),
            Self::Ip => ("ip", "four or sixteen bytes"),
            Self::Mac => ("mac", "six bytes"),
            Self::Be16 => ("be16", "integers of two bytes"),
            Self::Be32 => ("be32", "integers of four bytes"),
            Self::Be64 => ("be64", "integers of eight bytes"),
            Self::Hex => ("hex", "integers, bytes, structs and unions"),
            Self::String => ("string", "arrays of bytes"),
            Self::Decimal => ("decimal", "integers of sixteen bytes"),
            Self::Ktime => ("ktime", "integers of eight bytes"),
            Self::Time => ("time", "integers of eight bytes"),
            Self::Ifindex => ("ifindex", "integers of four or eight bytes"),
            Self::Protocol => ("protocol", "integers of one to eight bytes"),
            Self::TcpFlags => ("tcp_flags", "integers of one to eight bytes"),
            Self::Prefix => (
                "prefix",
                "structs of a number of bits and an address of four or sixteen bytes",
            ),
            Self::Histogram => (
                "histogram",
                "ARRAY and PERCPU_ARRAY maps of unsigned integers",
            ),
        }
    }

    /// Returns the rendering that a decl tag, or a name in stored layouts, asks for; `None` for
    /// tags of other tools.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let tag: StrDeserializer<'_, value::Error> = tag.into_deserializer();
        Self::deserialize(tag).ok()
    }
}

impl Layout {
    /// Returns the layout of `size` bytes without a known meaning.
    pub const fn opaque(size: usize) -> Self {
        Self {
            size,
            shape: Shape::Opaque,
            render: None,
        }
    }

    /// Tells whether the layout, or a part of it, asks for this rendering.
    pub fn renders(&self, render: Render) -> bool {
        let inside = match &self.shape {
            Shape::Array { element, .. } => element.renders(render),
            Shape::Struct(members) | Shape::Union(members) => {
                members.iter().any(|member| member.layout.renders(render))
            }
            _ => false,
        };
        self.render == Some(render) || inside
    }

    /// Returns the layout of an unsigned integer of `size` bytes.
    pub const fn unsigned(size: usize) -> Self {
        Self {
            size,
            shape: Shape::Int { signed: false },
            render: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendering_is_found_at_any_depth() {
        let address = Layout {
            render: Some(Render::Ipv4),
            ..Layout::unsigned(4)
        };
        let addresses = Shape::Array {
            element: Box::new(address),
            len: 2,
        };
        let layout = Layout {
            size: 8,
            shape: addresses,
            render: None,
        };
        let member = Member {
            name: "peers".into(),
            bit_offset: 0,
            bitfield: None,
            layout,
        };
        let record = Layout {
            size: 8,
            shape: Shape::Union(vec![member]),
            render: Some(Render::Hex),
        };
        assert!(record.renders(Render::Ipv4) && record.renders(Render::Hex));
        assert!(!record.renders(Render::Ifindex));
    }

    #[test]
    fn tags_are_the_names_that_layouts_are_stored_with() {
        for tag in [
            "ipv4",
            "ipv6",
            "ip",
            "mac",
            "be16",
            "be32",
            "be64",
            "hex",
            "string",
            "decimal",
            "ktime",
            "time",
            "ifindex",
            "protocol",
            "tcp_flags",
            "prefix",
            "histogram",
        ] {
            let render = Render::from_tag(tag).expect(tag);
            assert_eq!(render.tag().0, tag);
            assert_eq!(serde_json::to_value(render).unwrap(), tag);
        }
        assert_eq!(Render::from_tag("Ipv4"), None, "a tag of another tool");
    }
}
