//! Reader of answers that do not end by themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Daemon;
use crate::http::Address;

/// The longest time for which a test waits for a line.
const TIMEOUT: Duration = Duration::from_secs(90);

/// An open stream. Dropping the value hangs up.
#[derive(Debug)]
pub struct Stream {
    pub headers: String,
    body: BufReader<Chunked>,
}

/// A reader of a body in chunks that removes the frames around the chunks.
#[derive(Debug)]
struct Chunked {
    connection: BufReader<UnixStream>,
    /// The bytes that are left of the present chunk.
    left: usize,
    ended: bool,
}

impl Stream {
    /// Requests a stream and waits for the headers: from then on the daemon counts the stream as a
    /// client.
    pub fn open(daemon: &Daemon, path: &str, accept: &str) -> Result<Self> {
        let Address::Unix(socket) = daemon.address() else {
            bail!("streams are read from a socket")
        };
        let mut connection = UnixStream::connect(socket)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n"
        )?;
        let mut connection = BufReader::with_capacity(256 << 10, connection);
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            ensure!(
                connection.read_line(&mut headers)? > 0,
                "cut off: {headers}"
            );
        }
        ensure!(headers.starts_with("HTTP/1.1 200 "), "{headers}");
        let body = Chunked {
            connection,
            left: 0,
            ended: false,
        };
        Ok(Self {
            headers,
            body: BufReader::new(body),
        })
    }

    /// Returns the bare connection, for readers that need only speed. It yields the bytes of the
    /// body and of the frames around its chunks.
    pub fn into_connection(self) -> impl Read + Send + 'static {
        self.body.into_inner().connection.into_inner()
    }

    /// Returns the next line without its end, `None` at the proper end of the stream.
    pub fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        if self.body.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        ensure!(line.ends_with('\n'), "half a line: {line}");
        line.pop();
        Ok(Some(line))
    }

    /// Returns the next line as JSON.
    pub fn json(&mut self) -> Result<Value> {
        let line = self.line()?.context("the stream has ended")?;
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.body.read(buffer)
    }
}

impl Read for Chunked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.left == 0 {
            let size = self.frame_line()?;
            let size = usize::from_str_radix(size.trim(), 16)
                .map_err(|_| std::io::Error::other(format!("chunk size {size:?}")))?;
            if size == 0 {
                self.frame_line()?;
                self.ended = true;
                return Ok(0);
            }
            self.left = size;
        }
        let wanted = buffer.len().min(self.left);
        let read = self.connection.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        if self.left == 0 {
            self.frame_line()?;
        }
        Ok(read)
    }
}

impl Chunked {
    fn frame_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.connection.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }
}
