//! A small blocking HTTP/1.1 client: one request per connection. Not `ureq`: tests speak over Unix
//! sockets, send requests that are broken, and hang up in the middle of an answer.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::described;

/// The longest time that an answer may take, long polls included.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// An address in the calling thread's network namespace.
    Tcp(SocketAddr),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// The names, in lower case, and values, in the order received.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the first header of this name, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as text; panics if it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// Returns the body as JSON; panics, showing the body, if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!(
                "status {}, not JSON ({error}): {}",
                self.status,
                String::from_utf8_lossy(&self.body)
            )
        })
    }

    /// Returns the response if it has this status; panics, showing the body, otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(
            self.status,
            status,
            "body: {}",
            String::from_utf8_lossy(&self.body)
        );
        self
    }
}

/// Sends one request and reads its answer to the end. `Host` is `localhost` and a body is JSON
/// unless `headers` say something else. Panics if its status is not one that the API describes.
pub fn request(
    address: &Address,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let answer = match address {
        Address::Unix(socket) => {
            let stream = connect_unix(socket)?;
            exchange(stream, method, path, headers, body)
        }
        Address::Tcp(address) => {
            let stream =
                TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            exchange(stream, method, path, headers, body)
        }
    }?;
    described::check(method, path, answer.status);
    Ok(answer)
}

/// Sends a request to a socket, reads this many bytes of the answer and hangs up. Returns true if
/// there were that many.
pub fn take(address: &Address, method: &str, path: &str, bytes: usize) -> Result<bool> {
    let Address::Unix(socket) = address else {
        bail!("only sockets are hung up")
    };
    let mut stream = connect_unix(socket)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )?;
    let taken = std::io::copy(&mut stream.take(bytes as u64), &mut std::io::sink())?;
    Ok(taken == bytes as u64)
}

fn connect_unix(socket: &Path) -> Result<UnixStream> {
    let stream =
        UnixStream::connect(socket).with_context(|| format!("connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends one request over an open connection and reads its answer to the end.
pub fn exchange<S: Read + Write>(
    mut stream: S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let given = |wanted: &str| {
        headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !given("host") {
        head.push_str("host: localhost\r\n");
    }
    if !given("content-type") && !body.is_empty() {
        head.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || matches!(method, "PUT" | "POST" | "PATCH") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    // A server may answer (413) and close before it has read everything: a failed write is not an
    // error if it has answered.
    let written = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body))
        .and_then(|()| stream.flush());
    match read_response(&mut BufReader::new(stream), method) {
        Ok(response) => Ok(response),
        Err(error) => {
            written.context("send the request")?;
            Err(error)
        }
    }
}

/// Parses an answer to a GET.
pub fn parse(mut received: &[u8]) -> Result<Response> {
    read_response(&mut received, "GET")
}

/// Reads one answer of a connection.
pub fn read_response(reader: &mut impl BufRead, method: &str) -> Result<Response> {
    loop {
        let status = read_line(reader).context("read the status line")?;
        let code = status
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = code.with_context(|| format!("status line {status:?}"))?;
        let headers = read_headers(reader)?;
        if (100..200).contains(&status) {
            continue;
        }
        let mut response = Response {
            status,
            headers,
            body: Vec::new(),
        };
        if method == "HEAD" || matches!(status, 204 | 304) {
            return Ok(response);
        }
        if response
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            response.body = read_chunks(reader)?;
        } else if let Some(length) = response.header("content-length") {
            response.body = vec![0; length.parse().context("content-length")?];
            reader
                .read_exact(&mut response.body)
                .context("read the body")?;
        } else {
            reader
                .read_to_end(&mut response.body)
                .context("read the body")?;
        }
        return Ok(response);
    }
}

fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    ensure!(
        reader.read_line(&mut line)? > 0,
        "the connection was closed"
    );
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

fn read_headers(reader: &mut impl BufRead) -> Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader).context("read the headers")?;
        if line.is_empty() {
            return Ok(headers);
        }
        let (name, value) = line
            .split_once(':')
            .with_context(|| format!("header {line:?}"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader).context("read a chunk's size")?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(digits, 16).with_context(|| format!("chunk size {line:?}"))?;
        if size == 0 {
            read_headers(reader)?;
            return Ok(body);
        }
        let start = body.len();
        body.resize(start + size, 0);
        reader
            .read_exact(&mut body[start..])
            .context("read a chunk")?;
        read_line(reader).context("read a chunk's end")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Response {
        super::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_body_of_known_length() {
        let response = parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a:b\r\n\r\n{}rest");
        assert_eq!(
            (response.status, response.header("x"), response.text()),
            (200, Some("a:b"), "{}")
        );
    }

    #[test]
    fn a_chunked_body_after_an_interim_answer() {
        let response = parse(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n",
        );
        assert_eq!((response.status, response.text()), (422, "abcd"));
    }

    #[test]
    fn a_body_until_the_end() {
        assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\nall").text(), "all");
        assert_eq!(parse("HTTP/1.1 204 No Content\r\n\r\n").body, b"");
    }

    #[test]
    fn a_cut_off_answer_is_an_error() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
            "junk\r\n\r\n",
        ] {
            assert!(super::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
