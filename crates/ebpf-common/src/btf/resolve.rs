//! The resolution of types to [`Layout`]s: it follows references, checks sizes, and lifts anonymous
//! members.

use super::blob::Btf;
use super::error::BtfError;
use super::types::{BtfKind, BtfMember, INT_BOOL, INT_CHAR, INT_SIGNED, Variant};
use crate::layout::{EnumVariant, Layout, Member, Render, Shape};

/// The deepest nesting of structs and arrays. The limit also stops a struct that contains itself.
const MAX_DEPTH: usize = 32;
/// The most typedefs and qualifiers in a row. The limit also stops a typedef of itself.
const MAX_HOPS: usize = 64;
/// The most nodes and enum variants of one layout. An array of any length counts as one node.
const MAX_NODES: usize = 65_536;
/// The most times that the bytes of a layout may be repeated: unions in unions show the same bytes
/// again and again.
const MAX_VIEWS: usize = 64;
const POINTER_SIZE: usize = 8;

/// Returns the number of bytes of all leaves. The bytes of a union count once for each of its
/// members.
fn shown(layout: &Layout) -> usize {
    match &layout.shape {
        Shape::Struct(members) | Shape::Union(members) => members
            .iter()
            .fold(0, |sum, member| sum.saturating_add(shown(&member.layout))),
        Shape::Array { element, len } => shown(element).saturating_mul(*len),
        _ => layout.size,
    }
}

/// A type without its typedefs and qualifiers.
pub(super) struct Stripped<'a> {
    pub id: u32,
    pub kind: &'a BtfKind,
    /// The rendering of the outermost typedef with a tag, or else of the type itself.
    pub render: Option<Render>,
}

impl Btf {
    /// Returns the meaning of the bytes of a value of this type.
    ///
    /// # Errors
    ///
    /// Fails if the type does not exist, if its values have no known number of bytes, or if it is
    /// nested too deeply or has too many parts.
    pub fn layout(&self, type_id: u32) -> Result<Layout, BtfError> {
        let layout = Resolver {
            btf: self,
            root: type_id,
            nodes: MAX_NODES,
        }
        .layout(type_id, 0)?;
        if layout.size == 0 {
            return Err(BtfError::ZeroSize {
                name: self.describe(type_id),
            });
        }
        if shown(&layout) > layout.size.saturating_mul(MAX_VIEWS) {
            return Err(BtfError::TooLarge {
                name: self.describe(type_id),
            });
        }
        Ok(layout)
    }

    /// Returns the number of bytes of a value of this type.
    ///
    /// # Errors
    ///
    /// Fails if the type does not exist, if it has no values (`void`, a function), or more than 4
    /// GiB.
    pub fn size_of(&self, type_id: u32) -> Result<usize, BtfError> {
        let (mut id, mut count) = (type_id, 1_u64);
        for _ in 0..=MAX_DEPTH {
            let stripped = self.strip(id)?;
            let size = match *stripped.kind {
                BtfKind::Array { element, len } => {
                    count = self.array_size(type_id, count, u64::from(len))?;
                    id = element;
                    continue;
                }
                BtfKind::Int { size, .. }
                | BtfKind::Float { size }
                | BtfKind::Enum { size, .. }
                | BtfKind::Struct { size, .. }
                | BtfKind::Union { size, .. } => u64::from(size),
                BtfKind::Pointer(_) => POINTER_SIZE as u64,
                ref other => {
                    let kind = other.describe();
                    return Err(BtfError::NoValue {
                        name: self.describe(stripped.id),
                        kind,
                    });
                }
            };
            return self
                .array_size(type_id, count, size)
                .map(|size| size as usize);
        }
        Err(BtfError::Depth {
            name: self.describe(type_id),
        })
    }

    pub(super) fn strip(&self, type_id: u32) -> Result<Stripped<'_>, BtfError> {
        let (mut id, mut render) = (type_id, None);
        for _ in 0..MAX_HOPS {
            if id == 0 {
                return Err(BtfError::NoValue {
                    name: self.describe(type_id),
                    kind: "void",
                });
            }
            let kind = &self.get(id)?.kind;
            render = render.or_else(|| self.renders.get(&(id, -1)).copied());
            match kind {
                BtfKind::Typedef(next) | BtfKind::Modifier(_, next) | BtfKind::Variable(next) => {
                    id = *next;
                }
                kind => return Ok(Stripped { id, kind, render }),
            }
        }
        Err(BtfError::Depth {
            name: self.describe(type_id),
        })
    }

    /// Returns `count * size`, if an object in C can have that size here.
    fn array_size(&self, type_id: u32, count: u64, size: u64) -> Result<u64, BtfError> {
        let total = count.saturating_mul(size);
        if total > u64::from(u32::MAX) {
            return Err(BtfError::Size {
                name: self.describe(type_id),
                kind: "array",
                size: total,
            });
        }
        Ok(total)
    }
}

struct Resolver<'a> {
    btf: &'a Btf,
    root: u32,
    /// The number of nodes that are still allowed.
    nodes: usize,
}

impl Resolver<'_> {
    fn layout(&mut self, type_id: u32, depth: usize) -> Result<Layout, BtfError> {
        if depth > MAX_DEPTH {
            return Err(BtfError::Depth {
                name: self.btf.describe(self.root),
            });
        }
        self.spend(1)?;
        let Stripped { id, kind, render } = self.btf.strip(type_id)?;
        let (size, shape) = match *kind {
            BtfKind::Int { size, encoding, .. } => self.int(id, size as usize, encoding)?,
            BtfKind::Pointer(_) => {
                let render = render.or(Some(Render::Hex));
                return Ok(Layout {
                    render,
                    ..Layout::unsigned(POINTER_SIZE)
                });
            }
            BtfKind::Float {
                size: size @ (4 | 8),
            } => (size as usize, Shape::Float),
            BtfKind::Enum {
                size: size @ (1 | 2 | 4 | 8),
                signed,
                ref variants,
            } => (size as usize, self.enumeration(size, signed, variants)?),
            BtfKind::Array { element, len } => self.array((type_id, id), element, len, depth)?,
            BtfKind::Struct { size, ref members } => (
                size as usize,
                Shape::Struct(self.members(id, size, members, false, depth)?),
            ),
            BtfKind::Union { size, ref members } => (
                size as usize,
                Shape::Union(self.members(id, size, members, true, depth)?),
            ),
            BtfKind::Float { size } | BtfKind::Enum { size, .. } => {
                return Err(self.bad_size(id, size as usize));
            }
            ref other => {
                let kind = other.describe();
                return Err(BtfError::NoValue {
                    name: self.btf.describe(id),
                    kind,
                });
            }
        };
        Ok(Layout {
            size,
            shape,
            render,
        })
    }

    fn int(&self, id: u32, size: usize, encoding: u8) -> Result<(usize, Shape), BtfError> {
        if !matches!(size, 1 | 2 | 4 | 8 | 16) {
            return Err(self.bad_size(id, size));
        }
        // clang gives `char` the encoding of `signed char`; gcc marks all three as CHAR.
        let name = self.btf.type_name(id);
        let numeric = matches!(name, "signed char" | "unsigned char");
        let shape = if encoding & INT_BOOL != 0 {
            Shape::Bool
        } else if size == 1 && (name == "char" || (encoding & INT_CHAR != 0 && !numeric)) {
            Shape::Char
        } else {
            Shape::Int {
                signed: encoding & INT_SIGNED != 0,
            }
        };
        Ok((size, shape))
    }

    /// Returns the shape of an enum of `size` bytes.
    fn enumeration(
        &mut self,
        size: u32,
        signed: bool,
        variants: &[Variant],
    ) -> Result<Shape, BtfError> {
        self.spend(variants.len())?;
        let variants = variants
            .iter()
            .map(|variant| self.variant(*variant, size, signed));
        Ok(Shape::Enum {
            signed,
            variants: variants.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the size and the shape of an array. The ids are those of the type, and of the array
    /// without typedefs and qualifiers.
    fn array(
        &mut self,
        (type_id, id): (u32, u32),
        element: u32,
        len: u32,
        depth: usize,
    ) -> Result<(usize, Shape), BtfError> {
        let element = Box::new(self.layout(element, depth + 1)?);
        if element.size == 0 {
            return Err(BtfError::ZeroSize {
                name: self.btf.describe(id),
            });
        }
        let size = self
            .btf
            .array_size(type_id, u64::from(len), element.size as u64)?;
        let len = len as usize;
        Ok((size as usize, Shape::Array { element, len }))
    }

    fn variant(&self, variant: Variant, size: u32, signed: bool) -> Result<EnumVariant, BtfError> {
        let unused = 64 - 8 * size;
        let top = variant.value << unused;
        let value = if signed {
            (top.cast_signed() >> unused).cast_unsigned()
        } else {
            top >> unused
        };
        Ok(EnumVariant {
            name: self.btf.name(variant.name)?.to_owned(),
            value,
        })
    }

    fn members(
        &mut self,
        parent: u32,
        size: u32,
        fields: &[BtfMember],
        is_union: bool,
        depth: usize,
    ) -> Result<Vec<Member>, BtfError> {
        if size == 0 {
            return Err(BtfError::ZeroSize {
                name: self.btf.describe(parent),
            });
        }
        let mut members = Vec::new();
        for (index, field) in (0_i32..).zip(fields) {
            let name = self.btf.name(field.name)?;
            if name.is_empty() && field.bits != 0 {
                continue; // padding
            }
            let mut layout = self.layout(field.type_id, depth + 1)?;
            let (bit_offset, bitfield) =
                self.place(field, size, &layout)
                    .ok_or_else(|| BtfError::Member {
                        name: self.btf.describe(parent),
                        member: name.to_owned(),
                    })?;
            // `T x[]` or `T x[0]`, where data can continue: at the end of a struct, anywhere in a
            // union.
            let at_end = is_union || index.unsigned_abs() as usize + 1 == fields.len();
            if at_end && layout.size == 0 && matches!(layout.shape, Shape::Array { .. }) {
                let member = name.to_owned();
                return Err(BtfError::Flexible {
                    name: self.btf.describe(parent),
                    member,
                });
            }
            if !name.is_empty() {
                let tag = self.btf.renders.get(&(parent, index)).copied();
                layout.render = tag.or(layout.render);
                members.push(Member {
                    name: name.to_owned(),
                    bit_offset,
                    bitfield,
                    layout,
                });
            } else if let Shape::Struct(inner) | Shape::Union(inner) = layout.shape {
                members.extend(inner.into_iter().map(|member| Member {
                    bit_offset: bit_offset + member.bit_offset,
                    ..member
                }));
            }
        }
        Ok(members)
    }

    /// Returns the offset of a member in bits, and its width if it is a bitfield; `None` if the
    /// member is not inside a parent of `size` bytes.
    fn place(&self, field: &BtfMember, size: u32, layout: &Layout) -> Option<(usize, Option<u8>)> {
        let (mut offset, mut bits) = (field.bit_offset as usize, field.bits);
        // Old BTF has no bitfield flags: the type of a bitfield is an integer with fewer bits than
        // its size.
        if let (
            0,
            Ok(Stripped {
                kind:
                    BtfKind::Int {
                        bits: width,
                        bit_offset,
                        ..
                    },
                ..
            }),
        ) = (bits, self.btf.strip(field.type_id))
            && usize::from(*width) < 8 * layout.size
            && *width > 0
        {
            offset += usize::from(*bit_offset);
            bits = *width;
        }
        let scalar = matches!(
            layout.shape,
            Shape::Int { .. } | Shape::Bool | Shape::Char | Shape::Enum { .. }
        );
        let (width, bitfield, valid) = match bits {
            0 => (8 * layout.size, None, offset.is_multiple_of(8)),
            bits => (
                usize::from(bits),
                Some(bits),
                scalar && usize::from(bits) <= 8 * layout.size,
            ),
        };
        (valid && offset + width <= 8 * size as usize).then_some((offset, bitfield))
    }

    fn spend(&mut self, nodes: usize) -> Result<(), BtfError> {
        let left = self.nodes.checked_sub(nodes);
        self.nodes = left.ok_or_else(|| BtfError::TooLarge {
            name: self.btf.describe(self.root),
        })?;
        Ok(())
    }

    fn bad_size(&self, id: u32, size: usize) -> BtfError {
        let kind = self.btf.get(id).map_or("type", |ty| ty.kind.describe());
        BtfError::Size {
            name: self.btf.describe(id),
            kind,
            size: size as u64,
        }
    }
}
