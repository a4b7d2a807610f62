//! The body of the fuzz target `capture`.

use std::io::Cursor;

use twinprobe_capture::Capture;

/// The most bytes that come out of a compressed capture.
const LIMIT: u64 = 1 << 20;
/// The size of a header that the reader puts in front of a packet.
const HEADER: usize = 14;

/// Reads a capture to its end. Checks that every packet is a part of the file, and that none is
/// returned twice.
pub fn capture(input: &[u8]) {
    let is_packed = input.starts_with(b"\x1f\x8b") || input.starts_with(b"\x28\xb5\x2f\xfd");
    let most = if is_packed {
        LIMIT as usize
    } else {
        input.len()
    };
    let local = vec!["192.0.2.1".parse().expect("an address")];
    let opened = Capture::open(Cursor::new(input.to_vec()), LIMIT, local);
    let mut capture = match opened {
        Ok(capture) => capture,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut bytes = 0;
    loop {
        match capture.advance() {
            Ok(true) => {
                let packet = capture.packet().expect("there is one");
                bytes += 12 + packet.bytes.len();
                let headers = HEADER * capture.framed().values().sum::<u64>() as usize;
                assert!(bytes <= most + headers, "{packet:?}");
            }
            Ok(false) => return assert!(capture.packet().is_none()),
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    }
}
