//! Writing results.

use std::io::{self, Write as _};

use terminal_size::Width;
use twinprobe_client::{Answer, finding_line};
use twinprobe_ebpf_common::finding::Finding;

use crate::cli::error::CommandError;

/// Whether somebody still reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeState {
    Present,
    Gone,
}

/// Writes `text` and, where it is missing, the last line's end. A reader that has seen enough (`| head`) is
/// no failure.
pub fn print(text: &[u8]) -> io::Result<()> {
    write(text).map(drop)
}

/// As [`print`], and says whether it was read.
pub fn write(text: &[u8]) -> io::Result<PipeState> {
    let end: &[u8] = if text.is_empty() || text.ends_with(b"\n") { b"" } else { b"\n" };
    write_part(&[text, end])
}

/// Prints an answer's JSON with line breaks. What this version does not know of it is printed as well.
pub fn json<T>(answer: &Answer<T>) -> Result<(), CommandError> {
    Ok(print(format!("{:#}", answer.json()?).as_bytes())?)
}

/// Writes the pieces as they are, and says whether they were read.
pub fn write_part(pieces: &[&[u8]]) -> io::Result<PipeState> {
    let mut out = io::stdout().lock();
    match pieces.iter().try_for_each(|piece| out.write_all(piece)).and_then(|()| out.flush()) {
        Ok(()) => Ok(PipeState::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PipeState::Gone),
        Err(error) => Err(error),
    }
}

/// The widest a line should be: of no matter for a pipe.
pub fn width() -> usize {
    let Some((Width(columns), _)) = terminal_size::terminal_size_of(io::stdout()) else { return usize::MAX };
    // Whoever exports it means it; a terminal of a serial line knows no size.
    let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    wanted.unwrap_or(usize::from(columns))
}

/// What the daemon accepted but finds worth saying, on stderr.
pub fn warnings(warnings: &[Finding]) {
    for warning in warnings {
        complain(&finding_line(warning, "warning"));
    }
}

/// A line on stderr; if nobody listens, there is nobody to tell.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
