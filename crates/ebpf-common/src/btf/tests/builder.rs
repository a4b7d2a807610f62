//! A builder of BTF, type by type, which can make BTF that no compiler makes.

use crate::btf::blob::Btf;

/// Builds BTF by hand.
#[derive(Clone)]
pub struct Blob {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Blob {
    pub fn new() -> Self {
        Self {
            types: Vec::new(),
            strings: vec![0],
            count: 0,
        }
    }

    pub fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let offset = u32::try_from(self.strings.len()).expect("a small blob");
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        offset
    }

    /// Adds a type and returns its id. `info` is the number of parts that follow, with bit 31 as
    /// the flag.
    pub fn add(
        &mut self,
        name: &str,
        kind: u32,
        info: u32,
        size_or_type: u32,
        rest: &[u32],
    ) -> u32 {
        let name = self.string(name);
        for word in [name, kind << 24 | info, size_or_type].iter().chain(rest) {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    pub fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.add(name, 1, 0, size, &[(encoding << 24) | (8 * size)])
    }

    pub fn array(&mut self, element: u32, len: u32) -> u32 {
        self.add("", 3, 0, 0, &[element, element, len])
    }

    /// Members are name, type and offset (with the width of a bitfield in its top byte).
    pub fn record(
        &mut self,
        kind: u32,
        name: &str,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let bitfields = members.iter().any(|(_, _, offset)| offset >> 24 != 0);
        let count = u32::try_from(members.len()).expect("few members");
        let rest: Vec<_> = members
            .iter()
            .flat_map(|(name, ty, offset)| [self.string(name), *ty, *offset])
            .collect();
        self.add(name, kind, count | u32::from(bitfields) << 31, size, &rest)
    }

    pub fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.record(4, name, size, members)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut blob = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            blob.extend_from_slice(&u32::to_le_bytes(word));
        }
        blob.extend_from_slice(&self.types);
        blob.extend_from_slice(&self.strings);
        blob
    }

    pub fn btf(&self) -> Btf {
        Btf::parse(&self.bytes()).expect("valid BTF")
    }
}
