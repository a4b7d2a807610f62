//! The screen that text is shown on.

use std::io::{self, IsTerminal as _};

use anstyle::{AnsiColor, Style};
use terminal_size::Width;

/// The abilities of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// The number of columns of a line; no limit for a pipe.
    pub width: usize,
    /// True if text may have colours.
    pub colour: bool,
    /// True to show every column and exact numbers.
    pub wide: bool,
}

/// The beginning of the rest of a line.
const INDENT: &str = "  ";

pub const HEADING: Style = Style::new().bold();
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub const HINT: Style = AnsiColor::Cyan.on_default();
pub const GOOD: Style = AnsiColor::Green.on_default();

impl Screen {
    /// The screen of standard output.
    pub fn stdout() -> Self {
        Self {
            width: width(),
            colour: has_colour(&io::stdout()),
            wide: false,
        }
    }

    /// The screen of standard error.
    pub fn stderr() -> Self {
        Self {
            width: usize::MAX,
            colour: has_colour(&io::stderr()),
            wide: false,
        }
    }

    /// Returns `text` in a style, if the screen has colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.colour {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Cuts lines after `at` if they would be longer than `width` characters. The rest of a line is
/// indented.
pub fn folded(text: &str, width: usize, at: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut used = 0;
        for part in line.split_inclusive(at) {
            let length = part.trim_end().chars().count();
            if used > INDENT.len() && used + length > width {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.push_str(INDENT);
                used = INDENT.len();
            }
            out.push_str(part);
            used += part.chars().count();
        }
        out.push('\n');
    }
    out
}

/// Tells whether the output is a terminal whose user wants colours (<https://no-color.org>).
fn has_colour(stream: &impl io::IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal()
        && !is_set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn width() -> usize {
    let Some((Width(columns), _)) = terminal_size::terminal_size_of(io::stdout()) else {
        return usize::MAX;
    };
    // COLUMNS comes first: a user exports it on purpose, and a terminal on a serial line knows no
    // size.
    let wanted = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    wanted.unwrap_or(usize::from(columns))
}

/// Tells whether standard output is a terminal, where a picture can take the place of the one
/// before.
pub fn can_redraw() -> bool {
    io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_between_words() {
        let text = "ingress dns (hash): Questions by name\nno entries";
        assert_eq!(folded(text, 80, " "), format!("{text}\n"));
        let expected = "ingress dns\n  (hash):\n  Questions by\n  name\nno entries\n";
        assert_eq!(folded(text, 18, " "), expected);
        assert_eq!(
            folded("and 3 more: a 12, bytes 7", 20, ", "),
            "and 3 more: a 12,\n  bytes 7\n"
        );
        assert_eq!(
            folded("a_word_without_end of", 10, " "),
            "a_word_without_end\n  of\n"
        );
    }
}
