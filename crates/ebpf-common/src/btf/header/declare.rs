//! Declarations of C: a type around a name.

use std::fmt::Write as _;

use super::super::types::{BtfKind, BtfMember, INT_BOOL, INT_CHAR, INT_SIGNED, Qualifier};
use super::padding::filling;
use super::writer::Writer;

/// The deepest nesting of declarators and structs.
const MAX_DEPTH: usize = 64;

impl Writer<'_> {
    /// Returns the declaration of `inner` (a name, perhaps with brackets around it) with this type.
    pub(super) fn declare(&mut self, id: u32, inner: &str, depth: usize) -> String {
        let btf = self.btf;
        let Some(ty) = btf.get(id).ok().filter(|_| depth < MAX_DEPTH) else {
            return joined("void", inner);
        };
        match &ty.kind {
            BtfKind::Pointer(target) => {
                let inner = format!("*{inner}");
                self.declare(
                    *target,
                    &if self.binds(*target) {
                        format!("({inner})")
                    } else {
                        inner
                    },
                    depth + 1,
                )
            }
            BtfKind::Array { element, len } => {
                self.declare(*element, &format!("{inner}[{len}]"), depth + 1)
            }
            BtfKind::Prototype { result, parameters } => {
                let parameters = self.parameters(parameters, depth);
                self.declare(*result, &format!("{inner}({parameters})"), depth + 1)
            }
            BtfKind::Modifier(qualifier, target) => {
                let word = match qualifier {
                    Qualifier::Const => "const",
                    Qualifier::Volatile => "volatile",
                    Qualifier::Other => return self.declare(*target, inner, depth + 1),
                };
                match btf.get(*target).map(|target| &target.kind) {
                    Ok(BtfKind::Pointer(_)) => {
                        self.declare(*target, &format!(" {word} {inner}"), depth + 1)
                    }
                    Ok(BtfKind::Array { .. } | BtfKind::Prototype { .. }) => {
                        self.declare(*target, inner, depth + 1)
                    }
                    _ => format!("{word} {}", self.declare(*target, inner, depth + 1)),
                }
            }
            _ => {
                let base = self.base(id, depth);
                joined(&base, inner)
            }
        }
    }

    /// Tells whether a type in a declaration binds to the name more tightly than a pointer does.
    fn binds(&self, id: u32) -> bool {
        let kind = self.btf.get(id).map(|ty| &ty.kind);
        match kind {
            Ok(BtfKind::Array { .. } | BtfKind::Prototype { .. }) => true,
            // Qualifiers of arrays and functions are left out.
            Ok(BtfKind::Modifier(_, target)) if *target != id => self.binds(*target),
            _ => false,
        }
    }

    fn parameters(&mut self, types: &[u32], depth: usize) -> String {
        if types.is_empty() {
            return "void".to_owned();
        }
        let last = types.len() - 1;
        let parameters = types.iter().enumerate().map(|(index, ty)| match ty {
            0 if index == last && index > 0 => "...".to_owned(),
            ty => self.declare(*ty, "", depth + 1).trim_end().to_owned(),
        });
        parameters.collect::<Vec<_>>().join(", ")
    }

    /// Returns the name of a type that is not a pointer, array or function.
    fn base(&mut self, id: u32, depth: usize) -> String {
        let btf = self.btf;
        let Ok(ty) = btf.get(id) else {
            return "void".to_owned();
        };
        let named = !btf.type_name(id).is_empty();
        match &ty.kind {
            // `long` and `long long` are different types for C, and headers of the compiler have
            // the first.
            BtfKind::Int {
                size: 8, encoding, ..
            } if is_long(btf.type_name(id)) => integer(8, *encoding).replace("long long", "long"),
            BtfKind::Int { size, encoding, .. } => integer(*size, *encoding),
            BtfKind::Float { size: 4 } => "float".to_owned(),
            BtfKind::Float { size: 8 } => "double".to_owned(),
            // `long double` of the kernel's compiler.
            BtfKind::Float { .. } => "__int128".to_owned(),
            BtfKind::Typedef(_) => self.name(id),
            BtfKind::Struct { .. } if named => format!("struct {}", self.name(id)),
            BtfKind::Union { .. } if named => format!("union {}", self.name(id)),
            BtfKind::Forward { is_union: false } => {
                format!("struct {}", super::names::in_c(btf.type_name(id)))
            }
            BtfKind::Forward { is_union: true } => {
                format!("union {}", super::names::in_c(btf.type_name(id)))
            }
            BtfKind::Struct { size, members } => {
                format!("struct {}", self.body(*size, members, false, depth + 1))
            }
            BtfKind::Union { size, members } => {
                format!("union {}", self.body(*size, members, true, depth + 1))
            }
            BtfKind::Enum { variants, .. } if named && !variants.is_empty() => {
                format!("enum {}", self.name(id))
            }
            BtfKind::Enum { size, signed, .. } => {
                integer(*size, if *signed { INT_SIGNED } else { 0 })
            }
            _ => "void".to_owned(),
        }
    }

    /// Returns the body, from its brace on, of a struct or union of this many bytes.
    pub(super) fn body(
        &mut self,
        size: u32,
        members: &[BtfMember],
        is_union: bool,
        depth: usize,
    ) -> String {
        let btf = self.btf;
        let packed = self.alignments.is_packed(size, members);
        let tabs = "\t".repeat(depth.min(8));
        let mut body = "{\n".to_owned();
        let mut at = 0;
        for member in members {
            let place = self.alignments.place(member);
            if !is_union && place.natural(at, packed) != place.offset {
                fill(&mut body, &tabs, at, place.offset);
            }
            let name = btf.name(member.name).unwrap_or_default().to_owned();
            let declared = self.declare(member.type_id, &name, depth);
            let width = place
                .width
                .map(|width| format!(": {width}"))
                .unwrap_or_default();
            _ = writeln!(body, "{tabs}\t{}{width};", declared.trim_end());
            at = place.end();
        }
        let end = size.saturating_mul(8);
        if !is_union && at < end {
            fill(&mut body, &tabs, at, end);
        }
        body.push_str(&tabs);
        body.push_str(if packed {
            "} __attribute__((packed))"
        } else {
            "}"
        });
        body
    }
}

fn fill(body: &mut String, tabs: &str, at: u32, next: u32) {
    for (name, bits) in filling(at, next) {
        _ = writeln!(body, "{tabs}\t{name}: {bits};");
    }
}

fn joined(base: &str, inner: &str) -> String {
    format!("{base} {inner}")
}

/// Tells whether a name of an integer type in the kernel's BTF contains `long`.
fn is_long(name: &str) -> bool {
    name.split(' ').filter(|word| *word == "long").count() == 1
}

fn integer(size: u32, encoding: u8) -> String {
    if encoding & INT_BOOL != 0 && size == 1 {
        return "_Bool".to_owned();
    }
    if encoding & INT_CHAR != 0 && size == 1 {
        return "char".to_owned();
    }
    let name = match size {
        1 => "char",
        2 => "short",
        4 => "int",
        16 => "__int128",
        _ => "long long",
    };
    match (encoding & INT_SIGNED != 0, size) {
        (true, 1) => "signed char".to_owned(),
        (true, _) => name.to_owned(),
        (false, _) => format!("unsigned {name}"),
    }
}
