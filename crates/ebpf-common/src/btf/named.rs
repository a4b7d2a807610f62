//! Types by their names in C source.

use std::collections::BTreeMap;

use super::blob::Btf;
use super::types::BtfKind;
use crate::ipfix::element::element_of_tag;

/// The deepest nesting of structs, and the longest chain of typedefs. The limit also stops a struct
/// that contains itself.
const MAX_DEPTH: usize = 32;
/// The most fields of a value that have an element of IPFIX.
const MAX_ELEMENTS: usize = 256;

impl Btf {
    /// Returns the type of values that C calls `name`: `struct x`, `union x`, `enum x`, a typedef
    /// or a basic type. The keyword may be left out if no typedef and no basic type has the name.
    pub fn named_type(&self, name: &str) -> Option<u32> {
        let words: Vec<&str> = name.split_ascii_whitespace().collect();
        let find = |name: &str, fits: fn(&BtfKind) -> bool| {
            self.type_ids().find(|&id| {
                self.type_name(id) == name && self.get(id).is_ok_and(|ty| fits(&ty.kind))
            })
        };
        match words[..] {
            ["struct", name] => find(name, |kind| matches!(kind, BtfKind::Struct { .. })),
            ["union", name] => find(name, |kind| matches!(kind, BtfKind::Union { .. })),
            ["enum", name] => find(name, |kind| matches!(kind, BtfKind::Enum { .. })),
            [] => None,
            _ => {
                let name = words.join(" ");
                let plain = |kind: &BtfKind| {
                    matches!(
                        kind,
                        BtfKind::Typedef(_) | BtfKind::Int { .. } | BtfKind::Float { .. }
                    )
                };
                let tagged = |kind: &BtfKind| {
                    matches!(
                        kind,
                        BtfKind::Struct { .. } | BtfKind::Union { .. } | BtfKind::Enum { .. }
                    )
                };
                find(&name, plain).or_else(|| find(&name, tagged))
            }
        }
    }

    /// Returns the decl tags of types, fields and variables that ask for an unknown rendering, each
    /// with its place in words. It leaves out tags with a colon, which are meant for the kernel,
    /// and tags of functions, which are meant for other tools.
    pub fn unknown_tags(&self) -> impl Iterator<Item = (&str, String)> {
        let named = self
            .other_tags
            .iter()
            .map(|(ty, component, name)| (*ty, *component, self.name(*name)));
        named.filter_map(|(ty, component, name)| {
            let name = name.ok().filter(|name| !name.contains(':'))?;
            let kind = &self.get(ty).ok()?.kind;
            let of = match kind {
                BtfKind::Function | BtfKind::Prototype { .. } => return None,
                kind => format!("{} {}", kind.describe(), self.type_name(ty)),
            };
            let fields = match kind {
                BtfKind::Struct { members, .. } | BtfKind::Union { members, .. } => {
                    members.as_slice()
                }
                _ => &[],
            };
            let field = usize::try_from(component)
                .ok()
                .and_then(|at| fields.get(at));
            let field = field.and_then(|field| self.name(field.name).ok());
            Some((
                name,
                field.map_or(of.clone(), |field| format!("field {field} of {of}")),
            ))
        })
    }

    /// Returns the elements of IPFIX that tags name in a value of this type, by the path of
    /// members. Items of arrays have no elements.
    pub fn elements(&self, type_id: u32) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        self.add_elements(type_id, "", 0, &mut found);
        found
    }

    fn add_elements(
        &self,
        type_id: u32,
        path: &str,
        depth: usize,
        found: &mut BTreeMap<String, String>,
    ) {
        if depth > MAX_DEPTH || found.len() > MAX_ELEMENTS {
            return;
        }
        let named = |place| {
            self.elements
                .get(&place)
                .and_then(|tag| element_of_tag(self.name(*tag).ok()?))
        };
        let mut id = type_id;
        for _ in 0..MAX_DEPTH {
            // A tag of the field has priority over a tag of its type.
            if let Some(name) = named((id, -1)) {
                found
                    .entry(path.to_owned())
                    .or_insert_with(|| name.to_owned());
            }
            match self.get(id).map(|ty| &ty.kind) {
                Ok(BtfKind::Typedef(next) | BtfKind::Modifier(_, next)) => id = *next,
                Ok(BtfKind::Struct { members, .. } | BtfKind::Union { members, .. }) => {
                    for (index, member) in (0_i32..).zip(members) {
                        let name = self.name(member.name).unwrap_or_default();
                        let dot = if path.is_empty() || name.is_empty() {
                            ""
                        } else {
                            "."
                        };
                        let inside = format!("{path}{dot}{name}");
                        if let Some(element) = named((id, index)) {
                            found.insert(inside.clone(), element.to_owned());
                        }
                        self.add_elements(member.type_id, &inside, depth + 1, found);
                    }
                    return;
                }
                _ => return,
            }
        }
    }

    /// Returns `struct x` for each struct that has a name, in the order of the blob.
    pub fn struct_names(&self) -> impl Iterator<Item = String> {
        self.types
            .iter()
            .filter(|ty| matches!(ty.kind, BtfKind::Struct { .. }))
            .filter_map(|ty| self.name(ty.name).ok().filter(|name| !name.is_empty()))
            .map(|name| format!("struct {name}"))
    }
}
