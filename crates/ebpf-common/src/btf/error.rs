//! The reasons why BTF is refused.

/// The reason why a BTF blob, or a type in it, can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    #[error("the BTF ends inside its {0}")]
    Truncated(&'static str),
    #[error("not little-endian BTF: magic {0:#06x}")]
    Magic(u16),
    #[error("BTF version {0} is not known")]
    Version(u8),
    #[error("the BTF string section does not begin and end with a NUL byte")]
    Strings,
    #[error("BTF type {id} is of an unknown kind {kind}")]
    Kind { id: u32, kind: u32 },
    #[error("BTF variable {id} is of an unknown linkage {linkage}")]
    Linkage { id: u32, linkage: u32 },
    #[error("there is no BTF type {0}")]
    NoType(u32),
    #[error("the name at {0} is outside the BTF string section, too long, or not UTF-8")]
    Name(u32),
    #[error("{name} is a {kind}, which has no value")]
    NoValue { name: String, kind: &'static str },
    #[error("{name} has no size")]
    ZeroSize { name: String },
    #[error("{kind} {name} has an unusable size of {size} bytes")]
    Size {
        name: String,
        kind: &'static str,
        size: u64,
    },
    #[error("member {member} does not fit into {name}")]
    Member { name: String, member: String },
    #[error("member {member} of {name} has no fixed length: data of any length can follow it")]
    Flexible { name: String, member: String },
    #[error("{name} is nested too deeply or contains itself")]
    Depth { name: String },
    #[error("{name} has too many members")]
    TooLarge { name: String },
}
