//! Types by the name that C source gives them.

use super::blob::Btf;
use super::types::Kind;

impl Btf {
    /// The type of values called `name` in C: `struct x`, `union x`, `enum x`, a typedef, a basic type. The
    /// keyword may be left out where no typedef and no basic type has the name.
    pub fn named_type(&self, name: &str) -> Option<u32> {
        let words: Vec<&str> = name.split_ascii_whitespace().collect();
        let find = |name: &str, fits: fn(&Kind) -> bool| {
            self.type_ids()
                .find(|&id| self.type_name(id) == name && self.get(id).is_ok_and(|ty| fits(&ty.kind)))
        };
        match words[..] {
            ["struct", name] => find(name, |kind| matches!(kind, Kind::Struct { .. })),
            ["union", name] => find(name, |kind| matches!(kind, Kind::Union { .. })),
            ["enum", name] => find(name, |kind| matches!(kind, Kind::Enum { .. })),
            [] => None,
            _ => {
                let name = words.join(" ");
                let plain =
                    |kind: &Kind| matches!(kind, Kind::Typedef(_) | Kind::Int { .. } | Kind::Float { .. });
                let tagged = |kind: &Kind| {
                    matches!(kind, Kind::Struct { .. } | Kind::Union { .. } | Kind::Enum { .. })
                };
                find(&name, plain).or_else(|| find(&name, tagged))
            }
        }
    }

    /// `struct x` for each struct that has a name, in the order of the blob.
    pub fn struct_names(&self) -> impl Iterator<Item = String> {
        self.types
            .iter()
            .filter(|ty| matches!(ty.kind, Kind::Struct { .. }))
            .filter_map(|ty| self.name(ty.name).ok().filter(|name| !name.is_empty()))
            .map(|name| format!("struct {name}"))
    }
}
