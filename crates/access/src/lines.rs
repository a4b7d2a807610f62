//! Files of one entry per line. `#` begins a comment.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::role::Role;
use twinprobe_state_files::trusted;

/// The number of mistakes of one file that are shown.
const SHOWN: usize = 20;

/// The length of a name in bytes.
const NAME_LIMIT: usize = 255;

#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    #[error("{path} can't be read")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} {}", list(.mistakes))]
    Content {
        path: PathBuf,
        mistakes: Vec<Mistake>,
    },
}

/// A line that can't be understood. The text of the line stays hidden: the text may be a secret in
/// the wrong place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The number of the line, from 1.
    pub line: usize,
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

fn list(mistakes: &[Mistake]) -> String {
    let shown: Vec<String> = mistakes
        .iter()
        .take(SHOWN)
        .map(Mistake::to_string)
        .collect();
    let more = mistakes.len().saturating_sub(SHOWN);
    if more == 0 {
        shown.join("; ")
    } else {
        format!("{}; and {more} more", shown.join("; "))
    }
}

/// Reads a file and parses its content.
pub fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Vec<Mistake>>,
) -> Result<T, LinesError> {
    let text =
        trusted::read(path).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.map_err(|source| LinesError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text).map_err(|mistakes| LinesError::Content {
        path: path.to_owned(),
        mistakes,
    })
}

/// Passes the words of each line that is not empty to `read`. Reports every mistake.
pub fn parse(
    text: &str,
    mut read: impl FnMut(&[&str]) -> Result<(), String>,
) -> Result<(), Vec<Mistake>> {
    let mut mistakes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        if let Some(Err(message)) = (!words.is_empty()).then(|| read(&words)) {
            mistakes.push(Mistake {
                line: number + 1,
                message,
            });
        }
    }
    if mistakes.is_empty() {
        Ok(())
    } else {
        Err(mistakes)
    }
}

/// Parses a word as a role.
pub fn role(word: &str) -> Result<Role, String> {
    Role::from_name(word).ok_or_else(|| {
        let known = Role::ALL.map(Role::name).join(", ");
        format!("the second word is not a role; roles are {known}")
    })
}

/// Refuses names that a line can't have, or that would not be readable in a log.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = name.chars().all(|c| c.is_ascii_graphic() && c != '#');
    if fits && (1..=NAME_LIMIT).contains(&name.len()) {
        return Ok(());
    }
    Err(format!(
        "a name has 1 to {NAME_LIMIT} printable ASCII characters, no white space and no #"
    ))
}
