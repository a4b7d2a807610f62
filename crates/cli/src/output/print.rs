//! The writing of results to stdout and of messages to stderr.

use std::io::{self, Write as _};

use serde_json::Value;
use twinprobe_client::Answer;

use crate::error::CommandError;

/// The state of the output's reader. In `twinprobe ... | head` the reader has ended with `head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeState {
    Present,
    Gone,
}

/// Writes `text`, and the end of the last line if it is missing. A reader that has seen enough (`|
/// head`) is not a failure.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), CommandError> {
    write(text.as_ref())?;
    Ok(())
}

/// Does the same as [`print`], and tells whether the output still has a reader.
pub fn write(text: &[u8]) -> io::Result<PipeState> {
    let end: &[u8] = if text.is_empty() || text.ends_with(b"\n") {
        b""
    } else {
        b"\n"
    };
    write_part(&[text, end])
}

/// Returns an answer's JSON. Fields that this version does not know are there as well.
pub fn value<T>(answer: &Answer<T>) -> Result<Value, CommandError> {
    Ok(answer.json()?)
}

/// Writes the pieces unchanged, and tells whether the output still has a reader.
pub fn write_part(pieces: &[&[u8]]) -> io::Result<PipeState> {
    let mut out = io::stdout().lock();
    match pieces
        .iter()
        .try_for_each(|piece| out.write_all(piece))
        .and_then(|()| out.flush())
    {
        Ok(()) => Ok(PipeState::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PipeState::Gone),
        Err(error) => Err(error),
    }
}

/// Prints a line on stderr. An error is ignored: there is no other place to report it.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
