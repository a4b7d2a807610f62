//! A parser of the BPF Type Format: what the kernel and clang write about types, made into [`Layout`]s.
//!
//! The input is compiled from source that a client sent: no blob may make it panic, loop, or take memory or
//! stack out of proportion. aya-obj's parser keeps the types and their members to itself.

mod error;
mod named;
mod parse;
mod resolve;
mod section;
#[cfg(test)]
mod tests;
mod types;

use std::collections::HashMap;

pub use error::BtfError;
pub use section::{InnerMapTypes, MapTypes, SectionVariable};

use crate::{Layout, Render};
use types::Type;

/// No identifier of C source comes near this; `KSYM_NAME_LEN` of the kernel is 512. It bounds what names
/// can cost when one string is shared by many members.
const MAX_NAME_LEN: usize = 511;

/// A parsed BTF blob. Types are named by their id; 0 is `void`.
#[derive(Clone, Debug)]
pub struct Btf {
    /// The type with id `i` is at `i - 1`.
    types: Vec<Type>,
    strings: Vec<u8>,
    /// Renderings by type and component (-1 for the type itself), from decl tags.
    renders: HashMap<(u32, i32), Render>,
}

impl Btf {
    /// Parses the content of a little-endian `.BTF` section.
    pub fn parse(blob: &[u8]) -> Result<Self, BtfError> {
        parse::parse(blob)
    }

    /// What the bytes of a value of this type mean.
    pub fn layout(&self, type_id: u32) -> Result<Layout, BtfError> {
        resolve::layout(self, type_id)
    }

    /// The bytes of a value of this type.
    pub fn size_of(&self, type_id: u32) -> Result<usize, BtfError> {
        resolve::size_of(self, type_id)
    }

    /// The ids of all types.
    pub fn type_ids(&self) -> impl Iterator<Item = u32> + use<> {
        1..=u32::try_from(self.types.len()).unwrap_or(u32::MAX)
    }

    /// The first type with this name; C keeps several name spaces, so it can be a struct or a typedef.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.type_ids().find(|&id| self.type_name(id) == name)
    }

    fn get(&self, id: u32) -> Result<&Type, BtfError> {
        let index = (id as usize).checked_sub(1);
        index.and_then(|index| self.types.get(index)).ok_or(BtfError::NoType(id))
    }

    fn name(&self, offset: u32) -> Result<&str, BtfError> {
        let tail = self.strings.get(offset as usize..).ok_or(BtfError::Name(offset))?;
        let head = &tail[..tail.len().min(MAX_NAME_LEN + 1)];
        let len = head.iter().position(|&byte| byte == 0).ok_or(BtfError::Name(offset))?;
        std::str::from_utf8(&head[..len]).map_err(|_| BtfError::Name(offset))
    }

    /// The name of a type, empty if it has none.
    fn type_name(&self, id: u32) -> &str {
        self.get(id).and_then(|ty| self.name(ty.name)).unwrap_or_default()
    }

    /// How a message calls a type.
    fn describe(&self, id: u32) -> String {
        match (self.get(id), self.type_name(id)) {
            (Err(_), _) if id == 0 => "void".to_owned(),
            (Ok(ty), "") => format!("an unnamed {}", ty.kind.describe()),
            (_, name) => name.to_owned(),
        }
    }
}
