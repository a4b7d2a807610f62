//! A parsed BTF blob: its types by number, their names, and the renderings that tags ask for.

use std::collections::HashMap;

use super::error::BtfError;
use super::types::Type;
use crate::layout::Render;

/// The longest name that is read, so that a string that many members share costs little. Identifiers of C
/// source are far shorter; `KSYM_NAME_LEN` of the kernel is 512.
const MAX_NAME_LEN: usize = 511;

/// A parsed BTF blob. Types are named by their id; 0 is `void`.
#[derive(Clone, Debug)]
pub struct Btf {
    /// The type with id `i` is at `i - 1`.
    pub(super) types: Vec<Type>,
    pub(super) strings: Vec<u8>,
    /// Renderings by type and component (-1 for the type itself), from decl tags.
    pub(super) renders: HashMap<(u32, i32), Render>,
    /// The tags `ie("name")` by type and component: the tag's name.
    pub(super) elements: HashMap<(u32, i32), u32>,
    /// The other decl tags: type, component, name.
    pub(super) other_tags: Vec<(u32, i32, u32)>,
    /// The type id of each variable in `.maps`, by its name.
    pub(super) maps: HashMap<String, u32>,
}

impl Btf {
    /// The ids of all types.
    pub fn type_ids(&self) -> impl Iterator<Item = u32> + use<> {
        1..=u32::try_from(self.types.len()).unwrap_or(u32::MAX)
    }

    /// The first type with this name; C keeps several name spaces, so it can be a struct or a typedef.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.type_ids().find(|&id| self.type_name(id) == name)
    }

    pub(super) fn get(&self, id: u32) -> Result<&Type, BtfError> {
        let index = (id as usize).checked_sub(1);
        index.and_then(|index| self.types.get(index)).ok_or(BtfError::NoType(id))
    }

    pub(super) fn name(&self, offset: u32) -> Result<&str, BtfError> {
        let tail = self.strings.get(offset as usize..).ok_or(BtfError::Name(offset))?;
        let head = &tail[..tail.len().min(MAX_NAME_LEN + 1)];
        let len = head.iter().position(|&byte| byte == 0).ok_or(BtfError::Name(offset))?;
        std::str::from_utf8(&head[..len]).map_err(|_| BtfError::Name(offset))
    }

    /// The name of a type; empty without a name.
    pub(super) fn type_name(&self, id: u32) -> &str {
        self.get(id).and_then(|ty| self.name(ty.name)).unwrap_or_default()
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
