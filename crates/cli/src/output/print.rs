//! The writing of results to stdout and of messages to stderr.

use std::io::{self, Write as _};

use terminal_size::Width;
use twinprobe_client::{Answer, finding_line};
use twinprobe_ebpf_common::finding::Finding;

use crate::error::CommandError;

/// The state of the output's reader. In `twinprobe ... | head` the reader is gone once `head` has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeState {
    Present,
    Gone,
}

/// Writes `text`, and the end of the last line if it is missing. A reader that has seen enough (`| head`) is no
/// failure.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), CommandError> {
    write(text.as_ref())?;
    Ok(())
}

/// Does the same as [`print`], and tells whether somebody still reads the output.
pub fn write(text: &[u8]) -> io::Result<PipeState> {
    let end: &[u8] = if text.is_empty() || text.ends_with(b"\n") { b"" } else { b"\n" };
    write_part(&[text, end])
}

/// Prints an answer's JSON with line breaks. Fields that this version does not know are printed as well.
pub fn json<T>(answer: &Answer<T>) -> Result<(), CommandError> {
    print(format!("{:#}", answer.json()?))
}

/// Writes the pieces as they are, and tells whether somebody still reads the output.
pub fn write_part(pieces: &[&[u8]]) -> io::Result<PipeState> {
    let mut out = io::stdout().lock();
    match pieces.iter().try_for_each(|piece| out.write_all(piece)).and_then(|()| out.flush()) {
        Ok(()) => Ok(PipeState::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PipeState::Gone),
        Err(error) => Err(error),
    }
}

/// Returns the number of columns that a line may have: no limit for a pipe.
pub fn width() -> usize {
    let Some((Width(columns), _)) = terminal_size::terminal_size_of(io::stdout()) else { return usize::MAX };
    // COLUMNS comes first: a user exports it on purpose, and a terminal on a serial line knows no size.
    let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    wanted.unwrap_or(usize::from(columns))
}

/// Prints the daemon's warnings about a configuration that it accepted, on stderr.
pub fn warnings(warnings: &[Finding]) {
    for warning in warnings {
        complain(&finding_line(warning, "warning"));
    }
}

/// Prints a line on stderr. An error is ignored: there is no other place to report it.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
