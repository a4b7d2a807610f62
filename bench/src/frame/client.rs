//! A cheap HTTP client, whose own work should not show in the measurements.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use twinprobe_tests::Daemon;

const BUFFER: usize = 256 << 10;
const OK: &[u8] = b"HTTP/1.1 200 ";
/// The last chunk, which ends a complete answer.
const END: &[u8] = b"0\r\n\r\n";
/// The header of a small answer, which comes in no chunks.
const LENGTH: &str = "content-length: ";

/// A client that sends one GET per connection and reads the answers into a buffer that is used
/// again.
pub struct Client {
    socket: PathBuf,
    buffer: Vec<u8>,
}

impl Client {
    pub fn new(daemon: &Daemon) -> Self {
        Self {
            socket: daemon.directories().socket(),
            buffer: vec![0; BUFFER],
        }
    }

    /// Reads a complete answer of status 200. Returns the number of its bytes, head and framing
    /// included.
    pub fn count(&mut self, path: &str) -> Result<usize> {
        self.read(path, |_| ())
    }

    /// Reads a complete answer of status 200 into `answer` as it was received. Returns the number
    /// of bytes.
    pub fn get(&mut self, path: &str, answer: &mut Vec<u8>) -> Result<usize> {
        answer.clear();
        self.read(path, |bytes| answer.extend_from_slice(bytes))
    }

    /// Reads a complete answer of status 200 and hands each piece on as it comes.
    pub fn read(&mut self, path: &str, mut sink: impl FnMut(&[u8])) -> Result<usize> {
        let mut stream = UnixStream::connect(&self.socket).context("connect")?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut total, mut end, mut known) = (0, [0; END.len()], None);
        loop {
            let read = stream.read(&mut self.buffer)?;
            if read == 0 {
                break;
            }
            let bytes = &self.buffer[..read];
            if total == 0 {
                ensure!(bytes.starts_with(OK), "{}", String::from_utf8_lossy(bytes));
                known = length(bytes);
            }
            // Keeps the last bytes of the answer so far: a single read may give fewer than five.
            let kept = END.len() - read.min(END.len());
            end.copy_within(END.len() - kept.., 0);
            end[kept..].copy_from_slice(&bytes[read - (END.len() - kept)..]);
            total += read;
            sink(bytes);
        }
        let is_complete = known.map_or(end == END, |known| total == known);
        ensure!(is_complete, "the answer was cut off after {total} bytes");
        Ok(total)
    }
}

/// Returns the length of an answer with its head, if the head tells it. The first read has all of a
/// head.
fn length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix(LENGTH)?
            .parse::<usize>()
            .ok()
    })?;
    Some(end + length)
}
