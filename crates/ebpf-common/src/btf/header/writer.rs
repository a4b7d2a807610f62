//! The writer of the header. A struct comes after the structs that it contains; all other types are
//! declared first.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::super::blob::Btf;
use super::super::error::BtfError;
use super::super::types::{BtfKind, Variant};
use super::names::{Names, in_c};
use super::padding::Alignments;

/// The longest chain of types that need each other. Chains of Linux 6.18 are shorter than 40.
const MAX_DEPTH: usize = 256;
/// The beginning of the header. Its attribute makes the compiler record each access to a field, so
/// that the loader finds the field in the running kernel.
const HEAD: &str = "#ifndef __VMLINUX_H__
#define __VMLINUX_H__

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push (__attribute__((preserve_access_index)), apply_to = record)
#endif

";
const TAIL: &str = "
#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif

#endif
";
/// The names of types that compilers and their headers define. The kernel's types of these names
/// may differ.
const BUILTIN: [&str; 3] = ["__builtin_va_list", "_Bool", "wchar_t"];

/// The header that is being written.
pub(super) struct Writer<'a> {
    pub btf: &'a Btf,
    pub alignments: Alignments<'a>,
    out: String,
    /// The names of structs, unions and enums; and the names of types, of enums' values and of
    /// functions.
    tags: Names,
    words: Names,
    /// The name of each type, by its number minus one; empty for a type without a name.
    names: Vec<String>,
    /// True for types that are written, or that the writer has begun to write.
    written: Vec<bool>,
}

impl Btf {
    /// Returns the types as a header of C, `vmlinux.h`.
    ///
    /// # Errors
    ///
    /// Fails if types need each other too deeply.
    pub fn header(&self) -> Result<String, BtfError> {
        let count = self.types.len();
        let mut writer = Writer {
            btf: self,
            alignments: Alignments::new(self),
            out: HEAD.to_owned(),
            tags: Names::default(),
            words: Names::default(),
            names: vec![String::new(); count],
            written: vec![false; count],
        };
        BUILTIN
            .into_iter()
            .for_each(|name| drop(writer.words.take(name)));
        writer.enums();
        writer.declarations();
        for id in self.type_ids() {
            writer.complete(id, 0)?;
        }
        writer.out.push_str(TAIL);
        Ok(writer.out)
    }
}

impl Writer<'_> {
    /// Returns the name of a type in the header.
    pub fn name(&self, id: u32) -> String {
        let name = (id as usize)
            .checked_sub(1)
            .and_then(|index| self.names.get(index));
        name.filter(|name| !name.is_empty())
            .cloned()
            .unwrap_or_else(|| in_c(self.btf.type_name(id)))
    }

    fn set_name(&mut self, id: u32, name: String) {
        self.names[id as usize - 1] = name;
    }

    /// Marks a type as begun. Tells whether the type was begun before.
    fn begin(&mut self, id: u32) -> bool {
        std::mem::replace(&mut self.written[id as usize - 1], true)
    }

    /// Writes the enums. In C, each name of a value can belong to one enum only.
    fn enums(&mut self) {
        let btf = self.btf;
        // A typedef of a nameless enum includes the enum.
        let typedefs = btf.types.iter().filter_map(|ty| match ty.kind {
            BtfKind::Typedef(target) => Some(target),
            _ => None,
        });
        let of_typedefs: HashSet<u32> = typedefs.collect();
        for id in btf.type_ids() {
            let Ok(BtfKind::Enum {
                size,
                signed,
                variants,
            }) = btf.get(id).map(|ty| &ty.kind)
            else {
                continue;
            };
            let name = btf.type_name(id).to_owned();
            // Compilers before clang 15 leave out the values of large enums.
            if variants.is_empty() || (name.is_empty() && of_typedefs.contains(&id)) {
                continue;
            }
            let name = if name.is_empty() {
                String::new()
            } else {
                self.tags.take(&name)
            };
            self.set_name(id, name.clone());
            let values = self.values(*size, *signed, variants);
            _ = writeln!(self.out, "enum {name} {values};\n");
        }
    }

    /// Returns the values of an enum, in braces.
    fn values(&mut self, size: u32, signed: bool, variants: &[Variant]) -> String {
        let mut values = "{\n".to_owned();
        for variant in variants {
            let name = self
                .words
                .take(self.btf.name(variant.name).unwrap_or_default());
            let value = match (signed, size) {
                (true, 8) => format!("{}LL", variant.value.cast_signed()),
                (false, 8) => format!("{}ULL", variant.value),
                (true, _) => variant.value.cast_signed().to_string(),
                (false, _) => (variant.value & 0xffff_ffff).to_string(),
            };
            _ = writeln!(values, "\t{name} = {value},");
        }
        // A small enum has its size by an attribute alone.
        values.push_str(match size {
            1 => "} __attribute__((mode(byte)))",
            2 => "} __attribute__((mode(HI)))",
            _ => "}",
        });
        values
    }

    /// Declares all structs and unions, so that pointers to them need nothing more.
    fn declarations(&mut self) {
        let btf = self.btf;
        let mut declared = HashSet::new();
        for id in btf.type_ids() {
            let name = btf.type_name(id);
            let (word, is_whole) = match btf.get(id).map(|ty| &ty.kind) {
                Ok(BtfKind::Struct { .. }) => ("struct", true),
                Ok(BtfKind::Union { .. }) => ("union", true),
                Ok(BtfKind::Forward { is_union }) => {
                    (if *is_union { "union" } else { "struct" }, false)
                }
                _ => continue,
            };
            if name.is_empty() {
                continue;
            }
            let name = if is_whole {
                self.tags.take(name)
            } else {
                in_c(name)
            };
            if declared.insert((word, name.clone())) {
                _ = writeln!(self.out, "{word} {name};");
            }
            self.set_name(id, name);
        }
        self.out.push('\n');
    }

    /// Writes the types that a declaration with this type needs, and the type itself if it is a
    /// typedef.
    fn declared(&mut self, id: u32, depth: usize) -> Result<(), BtfError> {
        let btf = self.btf;
        let Ok(ty) = btf.get(id) else { return Ok(()) };
        if depth > MAX_DEPTH {
            return Err(BtfError::Depth {
                name: btf.describe(id),
            });
        }
        match &ty.kind {
            BtfKind::Pointer(target) | BtfKind::Modifier(_, target) => {
                self.declared(*target, depth + 1)
            }
            BtfKind::Array { element, .. } => self.complete(*element, depth + 1),
            BtfKind::Prototype { result, parameters } => {
                self.declared(*result, depth + 1)?;
                parameters
                    .iter()
                    .try_for_each(|parameter| self.declared(*parameter, depth + 1))
            }
            BtfKind::Typedef(target) => self.typedef(id, *target, depth),
            BtfKind::Struct { members, .. } | BtfKind::Union { members, .. }
                if btf.type_name(id).is_empty() =>
            {
                members
                    .iter()
                    .try_for_each(|member| self.complete(member.type_id, depth + 1))
            }
            _ => Ok(()),
        }
    }

    /// Writes the types that a variable of this type needs, and the type itself.
    fn complete(&mut self, id: u32, depth: usize) -> Result<(), BtfError> {
        let btf = self.btf;
        let Ok(ty) = btf.get(id) else { return Ok(()) };
        if depth > MAX_DEPTH {
            return Err(BtfError::Depth {
                name: btf.describe(id),
            });
        }
        match &ty.kind {
            BtfKind::Struct { size, members } | BtfKind::Union { size, members }
                if !btf.type_name(id).is_empty() =>
            {
                if self.begin(id) {
                    return Ok(());
                }
                members
                    .iter()
                    .try_for_each(|member| self.complete(member.type_id, depth + 1))?;
                let is_union = matches!(ty.kind, BtfKind::Union { .. });
                let word = if is_union { "union" } else { "struct" };
                let body = self.body(*size, members, is_union, 0);
                let name = self.name(id);
                _ = writeln!(self.out, "{word} {name} {body};\n");
                Ok(())
            }
            BtfKind::Typedef(target) => {
                self.declared(id, depth)?;
                self.complete(*target, depth + 1)
            }
            BtfKind::Modifier(_, target) => self.complete(*target, depth + 1),
            _ => self.declared(id, depth),
        }
    }

    fn typedef(&mut self, id: u32, target: u32, depth: usize) -> Result<(), BtfError> {
        let btf = self.btf;
        let name = btf.type_name(id);
        if self.begin(id) {
            return Ok(());
        }
        self.declared(target, depth + 1)?;
        let name = self.words.take(name);
        self.set_name(id, name.clone());
        let declared = match btf.get(target).map(|ty| &ty.kind) {
            // The first typedef of an enum without a name has the values.
            Ok(BtfKind::Enum {
                size,
                signed,
                variants,
            }) if btf.type_name(target).is_empty()
                && !variants.is_empty()
                && !self.begin(target) =>
            {
                format!("enum {} {name}", self.values(*size, *signed, variants))
            }
            _ => self.declare(target, &name, 0),
        };
        _ = writeln!(self.out, "typedef {declared};\n");
        Ok(())
    }
}
