//! The types of a blob in their stored form, with unresolved names and references.

/// A type: `struct btf_type` and its parts.
#[derive(Clone, Debug)]
pub(super) struct Type {
    /// The offset of the type's name in the string section; 0 if the type has no name.
    pub name: u32,
    pub kind: BtfKind,
}

#[derive(Clone, Debug)]
pub(super) enum BtfKind {
    Int {
        size: u32,
        encoding: u8,
        bit_offset: u8,
        bits: u8,
    },
    Pointer(u32),
    Array {
        element: u32,
        len: u32,
    },
    Struct {
        size: u32,
        members: Vec<BtfMember>,
    },
    Union {
        size: u32,
        members: Vec<BtfMember>,
    },
    Enum {
        size: u32,
        signed: bool,
        variants: Vec<Variant>,
    },
    /// A struct or union of which only the name is known.
    Forward {
        is_union: bool,
    },
    Typedef(u32),
    /// `const`, `volatile`, `restrict` or a type tag: these do not change the meaning of the bytes.
    Modifier(Qualifier, u32),
    Function,
    Prototype {
        result: u32,
        /// The types of the parameters; 0 at the end stands for `...`.
        parameters: Vec<u32>,
    },
    Variable(u32),
    Section(Vec<SectionEntry>),
    Float {
        size: u32,
    },
    /// A decl tag. It stays in the list so that ids remain right; the parser stores its content
    /// with the tagged type.
    DeclTag,
}

/// A qualifier of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Qualifier {
    Const,
    Volatile,
    /// `restrict`, or a type tag, which C code without the kernel's headers does not know.
    Other,
}

/// The bits of an integer's encoding.
pub(super) const INT_SIGNED: u8 = 1;
pub(super) const INT_CHAR: u8 = 2;
pub(super) const INT_BOOL: u8 = 4;

/// A member of a struct or union.
#[derive(Clone, Copy, Debug)]
pub(super) struct BtfMember {
    pub name: u32,
    pub type_id: u32,
    pub bit_offset: u32,
    /// The width of a bitfield; 0 for other members.
    pub bits: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub name: u32,
    /// The value as it is stored; 32-bit values of signed enumerations are sign-extended.
    pub value: u64,
}

/// A variable of a DATASEC.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionEntry {
    pub type_id: u32,
    pub offset: u32,
    pub size: u32,
}

impl BtfKind {
    /// Returns the name that C has for the kind, for messages.
    pub const fn describe(&self) -> &'static str {
        match self {
            Self::Int { .. } => "integer",
            Self::Pointer(_) => "pointer",
            Self::Array { .. } => "array",
            Self::Struct { .. } => "struct",
            Self::Union { .. } => "union",
            Self::Enum { .. } => "enum",
            Self::Forward { .. } => "forward declaration",
            Self::Typedef(_) => "typedef",
            Self::Modifier(..) => "qualified type",
            Self::Function | Self::Prototype { .. } => "function",
            Self::Variable(_) => "variable",
            Self::Section(_) => "section",
            Self::Float { .. } => "float",
            Self::DeclTag => "tag",
        }
    }
}
