//! docs/benchmarks.md: a table on top, and a section for each experiment. A run replaces what it has measured.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::section::Section;

const CLAIMS: &str = "claims";

/// A document and the directory of its figures.
#[derive(Debug)]
pub struct Document<'a> {
    pub file: &'a Path,
}

impl Document<'_> {
    /// Writes a section in place of the one that the document has of this experiment, or at the end, and its claims
    /// into the table on top; also its figures.
    pub fn write(&self, experiment: &str, section: &Section, conditions: &str, commit: &str) -> Result<()> {
        let text = if self.file.exists() {
            fs::read_to_string(self.file).with_context(|| format!("read {}", self.file.display()))?
        } else {
            let table =
                "| claim | paper, or goal | ours | peers | section, commit |\n|---|---|---|---|---|\n";
            format!("# Benchmarks\n\n{}\n", between(CLAIMS, table))
        };
        let anchor = section.anchor();
        let rows: Vec<String> = section
            .claims
            .iter()
            .map(|claim| {
                let (title, what) = (section.title, claim.claim);
                let (paper, ours, peers) = (claim.paper, &claim.ours, &claim.peers);
                format!("| {what} | {paper} | {ours} | {peers} | [{title}](#{anchor}), {commit} |\n")
            })
            .collect();
        let text = with_claims(&text, &anchor, &rows.concat())?;
        let text = with_part(&text, experiment, &section.markdown(conditions));
        let directory = self.file.parent().context("a directory")?.join("figures");
        fs::create_dir_all(&directory)?;
        for figure in &section.figures {
            figure.draw(&directory)?;
        }
        fs::write(self.file, text).with_context(|| format!("write {}", self.file.display()))
    }
}

fn marks(name: &str) -> [String; 2] {
    [format!("<!-- bench: {name} -->\n"), format!("<!-- end: {name} -->\n")]
}

fn between(name: &str, text: &str) -> String {
    let [begin, end] = marks(name);
    format!("{begin}{text}{end}")
}

/// Splits a document into what is before a part, the part, and what is behind it.
fn split<'a>(text: &'a str, name: &str) -> Option<[&'a str; 3]> {
    let [begin, end] = marks(name);
    let (before, rest) = text.split_once(&begin)?;
    let (part, behind) = rest.split_once(&end)?;
    Some([before, part, behind])
}

fn with_part(text: &str, name: &str, part: &str) -> String {
    match split(text, name) {
        Some([before, _, behind]) => format!("{before}{}{behind}", between(name, part)),
        None => format!("{}\n\n{}", text.trim_end(), between(name, part)),
    }
}

/// Replaces the rows of the table on top that lead to a section.
fn with_claims(text: &str, anchor: &str, rows: &str) -> Result<String> {
    let [before, table, behind] = split(text, CLAIMS).context("the document has no table of claims")?;
    let link = format!("](#{anchor})");
    let lines: Vec<&str> = table.split_inclusive('\n').collect();
    // The rows stay where they were.
    let at = lines.iter().position(|line| line.contains(&link)).unwrap_or(lines.len());
    let mut kept = String::new();
    for (number, line) in lines.iter().enumerate() {
        if number == at {
            kept += rows;
        }
        if !line.contains(&link) {
            kept += line;
        }
    }
    if at == lines.len() {
        kept += rows;
    }
    Ok(format!("{before}{}{behind}", between(CLAIMS, &kept)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::section::{Claim, METHOD};
    use crate::frame::table::Table;

    fn section(title: &'static str, ours: &str) -> Section {
        let mut table = Table::new(&["a"]);
        table.row([ours]);
        let claim =
            Claim { claim: "it is fast", paper: "2x", ours: ours.to_owned(), peers: "none".to_owned() };
        Section {
            tables: vec![table],
            claims: vec![claim],
            ..Section::new(title, "How fast?", "By a clock.")
        }
    }

    #[test]
    fn a_run_replaces_what_it_has_measured() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("benchmarks.md");
        let document = Document { file: &file };
        document.write("first", &section("First, one", "1.1"), "Here.", "abc")?;
        document.write("second", &section("Second", "2.2"), "Here.", "abc")?;
        fs::write(&file, fs::read_to_string(&file)?.replace("# Benchmarks", "# Benchmarks\n\nBy hand."))?;
        document.write("first", &section("First, one", "3.3"), "There.", "def")?;
        let text = fs::read_to_string(&file)?;
        assert_eq!(text.matches("3.3").count(), 2, "{text}");
        assert!(!text.contains("1.1") && text.contains("By hand."), "{text}");
        let order = [
            "3.3 | none | [First, one](#first-one), def",
            "2.2 | none",
            "## First, one",
            "There.",
            "## Second",
        ];
        let places: Vec<_> = order.iter().map(|part| text.find(part)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {text}");
        Ok(())
    }

    #[test]
    fn methods_of_the_page_are_short() -> Result<()> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md");
        let text = fs::read_to_string(page)?;
        let names = text.lines().filter_map(|line| line.strip_prefix("<!-- bench: ")?.strip_suffix(" -->"));
        let mut sections = 0;
        for name in names.filter(|&name| name != CLAIMS) {
            let [_, part, _] = split(&text, name).context("a part has an end")?;
            // A title, an empty line, `**question?** method`.
            let first = part.lines().nth(2).unwrap_or_default();
            let method = first.strip_prefix("**").and_then(|first| first.split_once("?** "));
            let (_, method) = method.with_context(|| format!("{name}: no question and method in {first}"))?;
            assert!(method.len() <= METHOD, "{name}: a method of {} bytes, not {METHOD}", method.len());
            sections += 1;
        }
        assert!(sections > 10, "{sections} sections");
        Ok(())
    }
}
