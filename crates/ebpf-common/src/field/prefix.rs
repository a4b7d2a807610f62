//! Prefixes of addresses. A prefix is the bytes of an address, and the number of significant bits.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::layout::{Layout, Member, Render, Shape};

/// The number of bits before the IPv4 address in an IPv6 address that maps it.
const MAPPED: u64 = 96;

/// The parts of a struct that is shown as a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The offset of the address in bytes, and its size: 4 or 16.
    pub address: (usize, usize),
    /// The offset of the number of bits, and its size: 1, 2, 4 or 8.
    pub bits: (usize, usize),
}

impl Prefix {
    /// Finds the parts of a struct that has two members. The address is the first member if only
    /// the first can be an address by its rendering, and otherwise the second. `None` if the struct
    /// is not a prefix.
    pub fn of(layout: &Layout) -> Option<Self> {
        let Shape::Struct(members) = &layout.shape else {
            return None;
        };
        let [first, second] = &members[..] else {
            return None;
        };
        let (address, bits) = if is_address(first) && !is_address(second) {
            (first, second)
        } else {
            (second, first)
        };
        let is_number = matches!(bits.layout.shape, Shape::Int { signed: false })
            && bits.layout.render.is_none();
        let place = |member: &Member| {
            let (start, size) = (member.bit_offset / 8, member.layout.size);
            let fits = member.bitfield.is_none()
                && member.bit_offset.is_multiple_of(8)
                && start
                    .checked_add(size)
                    .is_some_and(|end| end <= layout.size);
            fits.then_some((start, size))
        };
        let (address, bits) = (place(address)?, place(bits)?);
        let parted = address.0 + address.1 <= bits.0 || bits.0 + bits.1 <= address.0;
        let sized = matches!(address.1, 4 | 16) && matches!(bits.1, 1 | 2 | 4 | 8);
        (is_number && parted && sized).then_some(Self { address, bits })
    }

    /// Finds the parts of the key of an LPM trie, if its second member is shown as an address.
    pub fn of_trie(key: &Layout) -> Option<Self> {
        let Shape::Struct(members) = &key.shape else {
            return None;
        };
        let is_one = key.render.is_none() && members.get(1).is_some_and(is_address);
        Self::of(key).filter(|prefix| is_one && prefix.bits == (0, 4))
    }

    /// Returns the address and the number of bits, in the notation of the address family. Different
    /// bytes give different texts.
    pub fn text(&self, value: &[u8]) -> String {
        let bits = value[self.bits.0..][..self.bits.1].iter().rev();
        let bits = bits.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let address = &value[self.address.0..][..self.address.1];
        if let Ok(octets) = <[u8; 4]>::try_from(address) {
            return format!("{}/{bits}", Ipv4Addr::from(octets));
        }
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).unwrap_or_default());
        match address.to_ipv4_mapped() {
            Some(mapped) if bits >= MAPPED => format!("{mapped}/{}", bits - MAPPED),
            _ => format!("{address}/{bits}"),
        }
    }

    /// Writes the prefix in a text into the bytes of a value. `None` if the text is not such a
    /// prefix.
    pub fn write(&self, text: &str, value: &mut [u8]) -> Option<()> {
        let (address, bits) = text.split_once('/')?;
        let bits: u64 = bits.parse().ok()?;
        let (octets, bits, most) = match (address.parse::<Ipv4Addr>(), self.address.1) {
            (Ok(address), 4) => (address.octets().to_vec(), bits, 32),
            (Ok(address), 16) => (
                address.to_ipv6_mapped().octets().to_vec(),
                bits.checked_add(MAPPED)?,
                32 + MAPPED,
            ),
            (Err(_), 16) => (
                address.parse::<Ipv6Addr>().ok()?.octets().to_vec(),
                bits,
                128,
            ),
            _ => return None,
        };
        if bits > most {
            return None;
        }
        value
            .get_mut(self.address.0..)?
            .get_mut(..self.address.1)?
            .copy_from_slice(&octets);
        let number = bits.to_le_bytes();
        value
            .get_mut(self.bits.0..)?
            .get_mut(..self.bits.1)?
            .copy_from_slice(&number[..self.bits.1]);
        Some(())
    }
}

fn is_address(member: &Member) -> bool {
    matches!(
        member.layout.render,
        Some(Render::Ipv4 | Render::Ipv6 | Render::Ip)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: usize, bits_first: bool) -> Layout {
        let member = |name: &str, bit_offset, layout| Member {
            name: name.into(),
            bit_offset,
            bitfield: None,
            layout,
        };
        let shape = Layout {
            render: Some(Render::Ip),
            ..Layout::opaque(address)
        };
        let members = match bits_first {
            true => vec![
                member("bits", 0, Layout::unsigned(4)),
                member("address", 32, shape),
            ],
            false => {
                vec![
                    member("address", 0, shape),
                    member("bits", 8 * address, Layout::unsigned(4)),
                ]
            }
        };
        Layout {
            size: 4 + address,
            shape: Shape::Struct(members),
            render: None,
        }
    }

    #[test]
    fn texts_lead_back_to_the_bytes() {
        for (size, texts) in [
            (4, &["10.0.0.0/8", "0.0.0.0/0", "255.255.255.255/32"][..]),
            (
                16,
                &[
                    "10.0.0.0/8",
                    "2001:db8::/32",
                    "::/0",
                    "fe80::1/128",
                    "0.0.0.0/0",
                ],
            ),
        ] {
            for bits_first in [true, false] {
                let layout = key(size, bits_first);
                let prefix = Prefix::of(&layout).unwrap();
                for text in texts {
                    let mut bytes = vec![0xaa; layout.size];
                    prefix.write(text, &mut bytes).unwrap();
                    assert_eq!(prefix.text(&bytes), *text);
                }
                for text in [
                    "10.0.0.0",
                    "10.0.0.0/33",
                    "::/129",
                    "x/8",
                    "10.0.0.0/-1",
                    "",
                ] {
                    assert_eq!(
                        prefix.write(text, &mut vec![0; layout.size]),
                        None,
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn only_tries_with_addresses_are_prefixes_by_themselves() {
        assert!(Prefix::of_trie(&key(4, true)).is_some());
        assert!(
            Prefix::of_trie(&key(16, false)).is_none(),
            "the kernel has the bits first"
        );
        let Shape::Struct(mut members) = key(4, true).shape else {
            return;
        };
        members[1].layout.render = None;
        let plain = Layout {
            size: 8,
            shape: Shape::Struct(members),
            render: None,
        };
        assert!(Prefix::of_trie(&plain).is_none() && Prefix::of(&plain).is_some());
    }

    #[test]
    fn bits_before_a_mapped_address_are_not_those_of_ipv4() {
        let prefix = Prefix::of(&key(16, true)).unwrap();
        let with = |bits: u32| {
            let address = Ipv4Addr::new(10, 0, 0, 0).to_ipv6_mapped().octets();
            prefix.text(&[&bits.to_le_bytes()[..], &address].concat())
        };
        assert_eq!(
            (with(104), with(8)),
            ("10.0.0.0/8".to_owned(), "::ffff:10.0.0.0/8".to_owned())
        );
    }
}
