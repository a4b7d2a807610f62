//! The body of the fuzz target `capture`.

use std::io::Cursor;

use twinprobe_capture::Capture;

/// Reads a capture to its end. Every packet is in the file, and none is there twice.
pub fn capture(input: &[u8]) {
    let opened = Capture::open(Cursor::new(input.to_vec()));
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
                assert!(bytes <= input.len(), "{packet:?}");
            }
            Ok(false) => return assert!(capture.packet().is_none()),
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    }
}
