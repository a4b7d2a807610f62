//! The types of a blob as they are stored, names and references unresolved.

/// A type: `struct btf_type` and what follows it.
#[derive(Clone, Debug)]
pub(super) struct Type {
    /// The offset of the type's name in the string section; 0 if the type has no name.
    pub name: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
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
        members: Vec<Field>,
    },
    Union {
        size: u32,
        members: Vec<Field>,
    },
    Enum {
        size: u32,
        signed: bool,
        variants: Vec<Variant>,
    },
    Forward,
    Typedef(u32),
    /// `const`, `volatile`, `restrict` and type tags: they don't change how bytes are read.
    Modifier(u32),
    Function,
    Prototype,
    Variable(u32),
    Section(Vec<SectionEntry>),
    Float {
        size: u32,
    },
    /// Kept only to count it; the parser files tags under the type they belong to.
    DeclTag,
}

/// Bits of the encoding of an integer.
pub(super) const INT_SIGNED: u8 = 1;
pub(super) const INT_CHAR: u8 = 2;
pub(super) const INT_BOOL: u8 = 4;

/// A member of a struct or union.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub name: u32,
    pub type_id: u32,
    pub bit_offset: u32,
    /// The width of a bitfield, else 0.
    pub bits: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub name: u32,
    /// The value as stored; 32-bit values are sign-extended in signed enumerations.
    pub value: u64,
}

/// A variable of a DATASEC.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionEntry {
    pub type_id: u32,
    pub offset: u32,
    pub size: u32,
}

impl Kind {
    /// Returns the name that C has for the kind, for messages.
    pub const fn describe(&self) -> &'static str {
        match self {
            Self::Int { .. } => "integer",
            Self::Pointer(_) => "pointer",
            Self::Array { .. } => "array",
            Self::Struct { .. } => "struct",
            Self::Union { .. } => "union",
            Self::Enum { .. } => "enum",
            Self::Forward => "forward declaration",
            Self::Typedef(_) => "typedef",
            Self::Modifier(_) => "qualified type",
            Self::Function | Self::Prototype => "function",
            Self::Variable(_) => "variable",
            Self::Section(_) => "section",
            Self::Float { .. } => "float",
            Self::DeclTag => "tag",
        }
    }
}
