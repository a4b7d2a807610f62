//! Parsing of bytes to [`Type`]s. Every length is checked against the rest of the blob before it is
//! used, so that memory stays proportional to the input.

use std::collections::HashMap;

use super::blob::Btf;
use super::error::BtfError;
use super::types::{BtfKind, BtfMember, Qualifier, SectionEntry, Type, Variant};
use crate::ipfix::element::element_of_tag;
use crate::layout::Render;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// `struct btf_header` up to `str_len`; newer headers are longer.
const HEADER_LEN: usize = 24;
/// `BTF_VAR_GLOBAL_EXTERN`, the last of the linkages of variables.
const MAX_LINKAGE: u32 = 2;

impl Btf {
    /// Parses the content of a little-endian `.BTF` section.
    ///
    /// # Errors
    ///
    /// Fails if the blob is incomplete, has another byte order or version, an unknown kind of type,
    /// or unterminated strings. Each query checks its names and references.
    pub fn parse(blob: &[u8]) -> Result<Self, BtfError> {
        let mut header = ByteReader {
            bytes: blob,
            part: "header",
        };
        match header.u16()? {
            MAGIC => {}
            other => return Err(BtfError::Magic(other)),
        }
        let [version, _flags] = header.array()?;
        if version != VERSION {
            return Err(BtfError::Version(version));
        }
        let header_len = header.u32()? as usize;
        if header_len < HEADER_LEN {
            return Err(BtfError::Truncated("header"));
        }
        let body = blob
            .get(header_len..)
            .ok_or(BtfError::Truncated("header"))?;
        let types = section(body, header.u32()?, header.u32()?)
            .ok_or(BtfError::Truncated("type section"))?;
        let strings = section(body, header.u32()?, header.u32()?)
            .ok_or(BtfError::Truncated("string section"))?;
        if strings.first() != Some(&0) || strings.last() != Some(&0) {
            return Err(BtfError::Strings);
        }

        let (strings, renders, elements, maps) = (
            strings.to_vec(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
        );
        let mut btf = Self {
            types: Vec::new(),
            strings,
            renders,
            elements,
            other_tags: Vec::new(),
            maps,
        };
        let mut reader = ByteReader {
            bytes: types,
            part: "type section",
        };
        while !reader.bytes.is_empty() {
            one_type(&mut btf, &mut reader)?;
        }
        btf.maps = btf.map_variables();
        Ok(btf)
    }
}

fn section(body: &[u8], offset: u32, len: u32) -> Option<&[u8]> {
    let (offset, len) = (offset as usize, len as usize);
    body.get(offset..offset.checked_add(len)?)
}

fn one_type(btf: &mut Btf, reader: &mut ByteReader<'_>) -> Result<(), BtfError> {
    let (name, info, size_or_type) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (kind, count, flag) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 == 1);
    let kind = match kind {
        1 => reader.int(size_or_type)?,
        2 => BtfKind::Pointer(size_or_type),
        3 => {
            let (element, _index, len) = (reader.u32()?, reader.u32()?, reader.u32()?);
            BtfKind::Array { element, len }
        }
        4 => BtfKind::Struct {
            size: size_or_type,
            members: reader.list(count, |r| r.field(flag))?,
        },
        5 => BtfKind::Union {
            size: size_or_type,
            members: reader.list(count, |r| r.field(flag))?,
        },
        6 => reader.enum32(size_or_type, count, flag)?,
        7 => BtfKind::Forward { is_union: flag },
        8 => BtfKind::Typedef(size_or_type),
        9 => BtfKind::Modifier(Qualifier::Volatile, size_or_type),
        10 => BtfKind::Modifier(Qualifier::Const, size_or_type),
        11 | 18 => BtfKind::Modifier(Qualifier::Other, size_or_type),
        12 => BtfKind::Function,
        13 => {
            let parameter = |r: &mut ByteReader<'_>| r.u32().and_then(|_name| r.u32());
            BtfKind::Prototype {
                result: size_or_type,
                parameters: reader.list(count, parameter)?,
            }
        }
        14 => {
            check_linkage(btf, reader.u32()?)?;
            BtfKind::Variable(size_or_type)
        }
        15 => BtfKind::Section(reader.list(count, ByteReader::section_entry)?),
        16 => BtfKind::Float { size: size_or_type },
        17 => {
            let component = reader.u32()?.cast_signed();
            note_tag(btf, name, (size_or_type, component));
            BtfKind::DeclTag
        }
        19 => BtfKind::Enum {
            size: size_or_type,
            signed: flag,
            variants: reader.list(count, ByteReader::variant64)?,
        },
        kind => {
            return Err(BtfError::Kind {
                id: next_id(btf),
                kind,
            });
        }
    };
    btf.types.push(Type { name, kind });
    Ok(())
}

/// Refuses a variable with an unknown linkage.
fn check_linkage(btf: &Btf, linkage: u32) -> Result<(), BtfError> {
    if linkage > MAX_LINKAGE {
        let id = next_id(btf);
        return Err(BtfError::Linkage { id, linkage });
    }
    Ok(())
}

/// Adds the tag with this name at its place: a type, and the index of a member or -1.
fn note_tag(btf: &mut Btf, name: u32, place: (u32, i32)) {
    let tag = btf.name(name).unwrap_or_default();
    // The first known tag wins, as in the source.
    match (Render::from_tag(tag), element_of_tag(tag)) {
        (Some(render), _) => drop(btf.renders.entry(place).or_insert(render)),
        (None, Some(_)) => drop(btf.elements.entry(place).or_insert(name)),
        (None, None) => btf.other_tags.push((place.0, place.1, name)),
    }
}

/// Returns the id of the next type.
fn next_id(btf: &Btf) -> u32 {
    u32::try_from(btf.types.len() + 1).unwrap_or(u32::MAX)
}

/// A reader that takes little-endian numbers from the front of a slice.
struct ByteReader<'a> {
    bytes: &'a [u8],
    part: &'static str,
}

impl ByteReader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BtfError> {
        let (head, tail) = self
            .bytes
            .split_first_chunk()
            .ok_or(BtfError::Truncated(self.part))?;
        self.bytes = tail;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, BtfError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BtfError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads `count` items. The memory grows only with items that exist, because `count` may be
    /// wrong.
    fn list<T>(
        &mut self,
        count: u32,
        mut item: impl FnMut(&mut Self) -> Result<T, BtfError>,
    ) -> Result<Vec<T>, BtfError> {
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads an integer type of this size.
    fn int(&mut self, size: u32) -> Result<BtfKind, BtfError> {
        let [bits, _, bit_offset, encoding] = self.array()?;
        Ok(BtfKind::Int {
            size,
            encoding: encoding & 0x0f,
            bit_offset,
            bits,
        })
    }

    /// Reads an enum of the kind whose values have 32 bits.
    fn enum32(&mut self, size: u32, count: u32, signed: bool) -> Result<BtfKind, BtfError> {
        let mut variants = self.list(count, |r| r.variant(signed))?;
        // clang before 15 cuts larger values, so that names would belong to wrong values.
        if size > 4 {
            variants.clear();
        }
        Ok(BtfKind::Enum {
            size,
            signed,
            variants,
        })
    }

    fn field(&mut self, bitfields: bool) -> Result<BtfMember, BtfError> {
        let (name, type_id, offset) = (self.u32()?, self.u32()?, self.u32()?);
        let (bit_offset, bits) = if bitfields {
            (offset & 0x00ff_ffff, offset.to_le_bytes()[3])
        } else {
            (offset, 0)
        };
        Ok(BtfMember {
            name,
            type_id,
            bit_offset,
            bits,
        })
    }

    fn variant(&mut self, signed: bool) -> Result<Variant, BtfError> {
        let (name, value) = (self.u32()?, self.u32()?);
        let value = if signed {
            i64::from(value.cast_signed()).cast_unsigned()
        } else {
            u64::from(value)
        };
        Ok(Variant { name, value })
    }

    fn variant64(&mut self) -> Result<Variant, BtfError> {
        let (name, low, high) = (self.u32()?, self.u32()?, self.u32()?);
        Ok(Variant {
            name,
            value: u64::from(high) << 32 | u64::from(low),
        })
    }

    fn section_entry(&mut self) -> Result<SectionEntry, BtfError> {
        Ok(SectionEntry {
            type_id: self.u32()?,
            offset: self.u32()?,
            size: self.u32()?,
        })
    }
}
