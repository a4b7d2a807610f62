//! Writing results.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Deserialize;

use super::http::Reply;
use super::problem;
use twinprobe_ebpf_common::finding::Finding;

/// Whether somebody still reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Present,
    Gone,
}

/// Writes `text` and, where it is missing, the last line's end. A reader that has seen enough (`| head`) is
/// no failure.
pub(super) fn print(text: &[u8]) -> io::Result<()> {
    write(text).map(drop)
}

/// As [`print`], and says whether it was read.
pub(super) fn write(text: &[u8]) -> io::Result<Reader> {
    let mut out = io::stdout().lock();
    let end: &[u8] = if text.is_empty() || text.ends_with(b"\n") { b"" } else { b"\n" };
    let written = out.write_all(text).and_then(|()| out.write_all(end)).and_then(|()| out.flush());
    match written {
        Ok(()) => Ok(Reader::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

/// The widest a line should be: of no matter for a pipe.
pub(super) fn width() -> usize {
    if !io::stdout().is_terminal() {
        return usize::MAX;
    }
    // Shells set it but rarely export it; where they do the user means it.
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(120)
}

/// What the daemon accepted but finds worth saying, on stderr.
pub(super) fn warnings(reply: &Reply) {
    #[derive(Default, Deserialize)]
    struct Accepted {
        #[serde(default)]
        warnings: Vec<Finding>,
    }
    let accepted: Accepted = serde_json::from_slice(&reply.body).unwrap_or_default();
    for warning in &accepted.warnings {
        complain(&problem::line(warning, "warning"));
    }
}

/// A line on stderr; if nobody listens, there is nobody to tell.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
