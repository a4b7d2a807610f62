//! A cheap HTTP client: what it does itself should not show in what it measures.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use twinprobe_tests::Daemon;

const BUFFER: usize = 256 << 10;
const OK: &[u8] = b"HTTP/1.1 200 ";
/// The last chunk: the answer is complete.
const END: &[u8] = b"0\r\n\r\n";

/// Sends one GET per connection and reads the answers into a buffer that is used again.
pub struct Client {
    socket: PathBuf,
    buffer: Vec<u8>,
}

impl Client {
    pub fn new(daemon: &Daemon) -> Self {
        Self { socket: daemon.directories().socket(), buffer: vec![0; BUFFER] }
    }

    /// How many bytes a complete answer 200 has, head and framing included.
    pub fn count(&mut self, path: &str) -> Result<usize> {
        self.read(path, |_| ())
    }

    /// A complete answer 200 as it was received, in the place of what was in `answer`.
    pub fn get(&mut self, path: &str, answer: &mut Vec<u8>) -> Result<usize> {
        answer.clear();
        self.read(path, |bytes| answer.extend_from_slice(bytes))
    }

    /// Hands each piece on as it comes.
    pub fn read(&mut self, path: &str, mut sink: impl FnMut(&[u8])) -> Result<usize> {
        let mut stream = UnixStream::connect(&self.socket).context("connect")?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut total, mut end) = (0, [0; END.len()]);
        loop {
            let read = stream.read(&mut self.buffer)?;
            if read == 0 {
                break;
            }
            let bytes = &self.buffer[..read];
            ensure!(total > 0 || bytes.starts_with(OK), "{}", String::from_utf8_lossy(bytes));
            // The last bytes of all: fewer than five may have come at once.
            let kept = END.len() - read.min(END.len());
            end.copy_within(END.len() - kept.., 0);
            end[kept..].copy_from_slice(&bytes[read - (END.len() - kept)..]);
            total += read;
            sink(bytes);
        }
        ensure!(end == END, "the answer was cut off after {total} bytes");
        Ok(total)
    }
}
