//! What the bytes of a key or a value mean.

use serde::{Deserialize, Serialize};

/// How `size` bytes are to be read. Made from BTF by [`crate::btf::Btf::layout`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes; for a bitfield member, of its declared type.
    pub size: usize,
    pub shape: Shape,
    /// The rendering a `btf_decl_tag` asked for.
    pub render: Option<Render>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Integers of 1, 2, 4, 8 or 16 bytes, pointers (unsigned).
    Int {
        signed: bool,
    },
    Bool,
    /// A `char`; an [`Shape::Array`] of it is a string.
    Char,
    /// IEEE 754, 4 or 8 bytes.
    Float,
    /// Enumerations of 1 to 8 bytes (`enum` and `enum64`).
    Enum {
        signed: bool,
        variants: Vec<EnumVariant>,
    },
    /// Members in declaration order. Members of anonymous structs and unions are nested under no name and
    /// have been lifted into the parent.
    Struct(Vec<Member>),
    Union(Vec<Member>),
    /// `len` elements; several dimensions nest.
    Array {
        element: Box<Layout>,
        len: usize,
    },
    /// No type is known: rendered in hex.
    Opaque,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnumVariant {
    pub name: String,
    /// The value's bits, sign- or zero-extended to 64.
    pub value: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    /// From the start of the enclosing [`Layout`], in bits.
    pub bit_offset: usize,
    /// `Some(width)` for a bitfield.
    pub bitfield: Option<u8>,
    pub layout: Layout,
}

/// Renderings chosen by `__attribute__((btf_decl_tag("...")))` on a field, typedef or map variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Render {
    Ipv4,
    Ipv6,
    Mac,
    Be16,
    Be32,
    Be64,
    Hex,
    String,
    Ktime,
    Ifindex,
    /// Of an array map: its slots count values by magnitude. Only OpenMetrics shows them so.
    Histogram,
}

impl Render {
    /// The rendering named by a decl tag; other tags mean nothing to us.
    pub fn from_tag(tag: &str) -> Option<Self> {
        Some(match tag {
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "mac" => Self::Mac,
            "be16" => Self::Be16,
            "be32" => Self::Be32,
            "be64" => Self::Be64,
            "hex" => Self::Hex,
            "string" => Self::String,
            "ktime" => Self::Ktime,
            "ifindex" => Self::Ifindex,
            "histogram" => Self::Histogram,
            _ => return None,
        })
    }
}

impl Layout {
    /// `size` bytes of which nothing is known.
    pub const fn opaque(size: usize) -> Self {
        Self { size, shape: Shape::Opaque, render: None }
    }

    /// Whether it, or something in it, asks for this rendering.
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

    pub const fn unsigned(size: usize) -> Self {
        Self { size, shape: Shape::Int { signed: false }, render: None }
    }
}
