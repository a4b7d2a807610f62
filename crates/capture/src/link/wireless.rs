//! Frames of 802.11 that carry IP: data frames without encryption, with LLC and SNAP headers.

use crate::link::framed::{Framed, Mac, UnfitFrame};

/// The header of LLC and SNAP before a type of Ethernet (RFC 1042), and that of bridge tunnels.
const SNAP: [[u8; 6]; 2] = [[0xaa, 0xaa, 3, 0, 0, 0], [0xaa, 0xaa, 3, 0, 0, 0xf8]];
/// The size of the frame check sequence after a frame, in bytes.
const CHECK: usize = 4;

/// The type of data frames, and two bits of its subtype: for frames without data, and for frames
/// with a quality-of-service field.
const DATA: u8 = 2;
const WITHOUT_DATA: u8 = 4;
const WITH_QUALITY: u8 = 8;
/// The flags in the second byte of a frame.
const TO_SYSTEM: u8 = 1;
const FROM_SYSTEM: u8 = 2;
const PROTECTED: u8 = 0x40;
const WITH_CONTROL: u8 = 0x80;
/// The bit in the quality-of-service field that marks a frame with several frames in it.
const AGGREGATED: u8 = 0x80;

/// The bits of radiotap's list of fields: time (8 bytes, aligned), flags (1 byte), another list.
const TIME: u32 = 1;
const FLAGS: u32 = 1 << 1;
const ANOTHER_LIST: u32 = 1 << 31;
/// The flags of a frame: a frame check sequence follows it; bytes are between its header and its
/// data.
const WITH_CHECK: u8 = 0x10;
const PADDED: u8 = 0x20;

/// Reads a frame that begins with a header of radiotap at `start`. `length` is that of the packet
/// on the link.
pub fn radiotap(bytes: &[u8], start: usize, length: u32) -> Result<Framed, UnfitFrame> {
    let header = bytes.get(start..).ok_or(UnfitFrame::Header)?;
    let size = header
        .get(2..4)
        .and_then(|size| size.first_chunk())
        .ok_or(UnfitFrame::Header)?;
    let size = usize::from(u16::from_le_bytes(*size));
    let header = header.get(..size).ok_or(UnfitFrame::Header)?;
    let flags = flags(header).ok_or(UnfitFrame::Header)?;
    let (mut end, mut length) = (bytes.len(), length);
    if flags & WITH_CHECK != 0 {
        // A frame that was cut off when it was captured has already lost the check at its end.
        let on_link = (length as usize).saturating_sub(CHECK);
        end = end.min(on_link);
        length = u32::try_from(on_link).unwrap_or(length);
    }
    body(bytes, start + size, end, length, flags & PADDED != 0)
}

/// Returns radiotap's flags of the frame; 0 if it has none, `None` if the header ends before them.
fn flags(header: &[u8]) -> Option<u8> {
    let list = |number: usize| {
        let word = header.get(4 + 4 * number..)?.first_chunk()?;
        Some(u32::from_le_bytes(*word))
    };
    let first = list(0)?;
    if first & FLAGS == 0 {
        return Some(0);
    }
    let mut lists = 1;
    while list(lists - 1)? & ANOTHER_LIST != 0 {
        lists += 1;
    }
    let mut at = 4 + 4 * lists;
    if first & TIME != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    header.get(at).copied()
}

/// Reads a frame that begins at `start` and ends at `end`.
pub fn frame(bytes: &[u8], start: usize, end: usize, length: u32) -> Result<Framed, UnfitFrame> {
    body(bytes, start, end, length, false)
}

fn body(
    bytes: &[u8],
    start: usize,
    end: usize,
    length: u32,
    is_padded: bool,
) -> Result<Framed, UnfitFrame> {
    let frame = bytes.get(start..end).ok_or(UnfitFrame::Header)?;
    let [control, flags] = *frame.first_chunk().ok_or(UnfitFrame::Header)?;
    let (kind, subtype) = (control >> 2 & 3, control >> 4);
    if kind != DATA || subtype & WITHOUT_DATA != 0 {
        return Err(UnfitFrame::NotIp);
    }
    if flags & PROTECTED != 0 {
        return Err(UnfitFrame::Encrypted);
    }
    let sequence = frame.get(22).copied().ok_or(UnfitFrame::Header)?;
    if sequence & 0xf != 0 {
        return Err(UnfitFrame::Fragment);
    }
    let addresses: [Mac; 3] = [part(frame, 4)?, part(frame, 10)?, part(frame, 16)?];
    let [first, second, third] = addresses;
    let mut size = 24;
    let (destination, source) = match (flags & TO_SYSTEM != 0, flags & FROM_SYSTEM != 0) {
        (false, false) => (first, second),
        (true, false) => (third, second),
        (false, true) => (first, third),
        (true, true) => {
            size += 6;
            (third, part(frame, 24)?)
        }
    };
    if subtype & WITH_QUALITY != 0 {
        let quality = frame.get(size).copied().ok_or(UnfitFrame::Header)?;
        if quality & AGGREGATED != 0 {
            return Err(UnfitFrame::Aggregated);
        }
        size += if flags & WITH_CONTROL != 0 { 6 } else { 2 };
    }
    if is_padded {
        size = size.next_multiple_of(4);
    }
    let snap: [u8; 8] = part(frame, size)?;
    let [head @ .., high, low] = snap;
    if !SNAP.contains(&head) {
        return Err(UnfitFrame::NotIp);
    }
    let framed = Framed::new(
        u16::from_be_bytes([high, low]),
        start + size + snap.len(),
        end,
        length,
    );
    Ok(Framed {
        destination,
        source,
        ..framed
    })
}

/// Returns the bytes of a frame at `at`.
fn part<const N: usize>(frame: &[u8], at: usize) -> Result<[u8; N], UnfitFrame> {
    let rest = frame.get(at..).ok_or(UnfitFrame::Header)?;
    rest.first_chunk().copied().ok_or(UnfitFrame::Header)
}
