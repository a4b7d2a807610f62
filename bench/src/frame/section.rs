//! The page that an experiment writes.

use std::fmt::Write as _;

use super::figure::Figure;
use super::table::Table;

/// The most bytes of a method, which are three lines.
pub const METHOD: usize = 420;

/// The result of an experiment: a page below docs/benchmarks/, and rows of the table of all claims.
#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    pub question: &'static str,
    /// The comparison, its means and its order, in three lines: at most [`METHOD`] bytes.
    pub method: String,
    /// The sender of the packets, if there are any.
    pub generator: Option<String>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// The meaning for a user.
    pub meaning: String,
    /// The definitions of columns, and the special cases that the method leaves out.
    pub details: String,
    pub claims: Vec<Claim>,
}

/// A row of the table of claims: a claim of the paper, or a goal of this project.
#[derive(Debug)]
pub struct Claim {
    pub claim: &'static str,
    /// The figure of the paper, or the goal.
    pub paper: &'static str,
    pub ours: String,
    /// The figures of other systems.
    pub peers: String,
}

impl Section {
    /// Begins a section, before anything is measured.
    ///
    /// # Panics
    /// Panics if the method is longer than three lines.
    pub fn new(title: &'static str, question: &'static str, method: impl Into<String>) -> Self {
        let method = method.into();
        let length = method.len();
        assert!(
            length <= METHOD,
            "the method of \"{title}\" has {length} bytes, and {METHOD} are the most: what is more is for `details`"
        );
        Self {
            title,
            question,
            method,
            generator: None,
            tables: Vec::new(),
            figures: Vec::new(),
            meaning: String::new(),
            details: String::new(),
            claims: Vec::new(),
        }
    }

    /// Returns the section in Markdown. `conditions` gives the place and time of the measurement.
    pub fn markdown(&self, conditions: &str) -> String {
        let mut text = format!(
            "# {}\n\n**{}** {}\n\n{conditions}",
            self.title, self.question, self.method
        );
        if let Some(generator) = &self.generator {
            // Writing to a String can't fail.
            let _ = write!(text, " Packets: {generator}.");
        }
        text += "\n\n";
        for table in &self.tables {
            text += &table.markdown();
        }
        for figure in &self.figures {
            let _ = writeln!(text, "![{}](figures/{})\n", figure.title, figure.file());
        }
        text += &self.meaning;
        text += "\n";
        if !self.details.is_empty() {
            // Writing to a String can't fail.
            let _ = writeln!(text, "\n*In detail.* {}", self.details);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_the_end_of_a_section() {
        let mut section = Section::new("Speed", "How fast?", "By a clock.");
        section.meaning = "It is fast.".to_owned();
        assert!(section.markdown("Here.").ends_with("\n\nIt is fast.\n"));
        section.details = "The clock has a hand.".to_owned();
        let text = section.markdown("Here.");
        assert!(
            text.starts_with("# Speed\n\n**How fast?** By a clock.\n\nHere.\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n\nIt is fast.\n\n*In detail.* The clock has a hand.\n"),
            "{text}"
        );
    }

    #[test]
    #[should_panic(expected = "the method of \"Speed\" has 421 bytes")]
    fn a_method_is_short() {
        Section::new("Speed", "How fast?", "a".repeat(METHOD + 1));
    }
}
