//! A parsed BTF blob: its types by number, their names, and the renderings that tags ask for.

use std::collections::HashMap;

use super::error::BtfError;
use super::types::Type;
use crate::layout::Render;

/// The longest name that is read, so that a string that many members share costs little.
/// Identifiers of C source are far shorter; `KSYM_NAME_LEN` of the kernel is 512.
const MAX_NAME_LEN: usize = 511;

/// A parsed BTF blob. The numbers of types are their ids; id 0 is `void`.
#[derive(Clone, Debug)]
pub struct Btf {
    /// The types. The type with id `i` is at `i - 1`.
    pub(super) types: Vec<Type>,
    pub(super) strings: Vec<u8>,
    /// The renderings from decl tags, by type and component (-1 for the type itself).
    pub(super) renders: HashMap<(u32, i32), Render>,
    /// The names in tags `ie("name")`, by type and component.
    pub(super) elements: HashMap<(u32, i32), u32>,
    /// The other decl tags: type, component, and name of the tag.
    pub(super) other_tags: Vec<(u32, i32, u32)>,
    /// The id of each variable's type in `.maps`, by the name of the variable.
    pub(super) maps: HashMap<String, u32>,
}

impl Btf {
    /// Returns the ids of all types.
    pub fn type_ids(&self) -> impl Iterator<Item = u32> + use<> {
        1..=u32::try_from(self.types.len()).unwrap_or(u32::MAX)
    }

    /// Returns the first type with this name. C has several name spaces, so the type may be a
    /// struct or a typedef.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.type_ids().find(|&id| self.type_name(id) == name)
    }

    pub(super) fn get(&self, id: u32) -> Result<&Type, BtfError> {
        let index = (id as usize).checked_sub(1);
        index
            .and_then(|index| self.types.get(index))
            .ok_or(BtfError::NoType(id))
    }

    pub(super) fn name(&self, offset: u32) -> Result<&str, BtfError> {
        let tail = self
            .strings
            .get(offset as usize..)
            .ok_or(BtfError::Name(offset))?;
        let head = &tail[..tail.len().min(MAX_NAME_LEN + 1)];
        let len = head
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(BtfError::Name(offset))?;
        std::str::from_utf8(&head[..len]).map_err(|_| BtfError::Name(offset))
    }

    /// Returns the name of a type; empty for a type without a name.
    pub(super) fn type_name(&self, id: u32) -> &str {
        self.get(id)
            .and_then(|ty| self.name(ty.name))
            .unwrap_or_default()
    }

    /// Returns the name of a type for messages.
    pub(super) fn describe(&self, id: u32) -> String {
        match (self.get(id), self.type_name(id)) {
            (Err(_), _) if id == 0 => "void".to_owned(),
            (Ok(ty), "") => format!("an unnamed {}", ty.kind.describe()),
            (_, name) => name.to_owned(),
        }
    }
}
