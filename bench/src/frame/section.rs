//! The section of the page that an experiment writes.

use std::fmt::Write as _;

use super::figure::Figure;
use super::table::Table;

/// The result of an experiment: a section of docs/benchmarks.md, and rows of the table on top of it.
#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    pub question: &'static str,
    /// Three lines on how it is measured.
    pub method: String,
    /// The sender of the packets, if there are any.
    pub generator: Option<String>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// The meaning for a user.
    pub meaning: String,
    pub claims: Vec<Claim>,
}

/// A row of the table on top: a claim of the paper or a goal of ours.
#[derive(Debug)]
pub struct Claim {
    pub claim: &'static str,
    /// The figure of the paper, or what is aimed at.
    pub paper: &'static str,
    pub ours: String,
    /// The figures of others.
    pub peers: String,
}

impl Section {
    pub fn new(title: &'static str, question: &'static str, method: impl Into<String>) -> Self {
        Self {
            title,
            question,
            method: method.into(),
            generator: None,
            tables: Vec::new(),
            figures: Vec::new(),
            meaning: String::new(),
            claims: Vec::new(),
        }
    }

    /// Returns the section in Markdown. `conditions` says where and when it was measured.
    pub fn markdown(&self, conditions: &str) -> String {
        let mut text = format!("## {}\n\n**{}** {}\n\n{conditions}", self.title, self.question, self.method);
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
        text + &self.meaning + "\n"
    }

    /// Returns the anchor of the section in the document.
    pub fn anchor(&self) -> String {
        let kept = self.title.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    }
}
