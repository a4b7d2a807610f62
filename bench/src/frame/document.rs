//! The pages below docs/benchmarks/: one for each experiment, and one with the claims of all. A run
//! replaces the parts that it has measured. People write docs/benchmarks.md, the short page above
//! them; a test (`system::benchmarks`) compares its figures with these pages.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::section::Section;

/// The page with the claims of all experiments, which ends with their table.
const CLAIMS: &str = "claims.md";

/// The directory of the pages, and of their figures in `figures` below it.
#[derive(Debug)]
pub struct Document<'a> {
    pub directory: &'a Path,
}

impl Document<'_> {
    /// Writes the page of an experiment with its figures, and its claims in the table: they replace
    /// earlier ones, or are added at the end.
    pub fn write(
        &self,
        experiment: &str,
        section: &Section,
        conditions: &str,
        commit: &str,
    ) -> Result<()> {
        let figures = self.directory.join("figures");
        fs::create_dir_all(&figures)?;
        for figure in &section.figures {
            figure.draw(&figures)?;
        }
        self.save(&format!("{experiment}.md"), &section.markdown(conditions))?;
        let table = self.directory.join(CLAIMS);
        let text = if table.exists() {
            fs::read_to_string(&table).with_context(|| format!("read {}", table.display()))?
        } else {
            let table =
                "| claim | paper, or goal | ours | peers | page, commit |\n|---|---|---|---|---|\n";
            format!("# All claims\n\n{table}")
        };
        let link = format!("]({experiment}.md)");
        let rows: Vec<String> = section
            .claims
            .iter()
            .map(|claim| {
                let (title, what) = (section.title, claim.claim);
                let (paper, ours, peers) = (claim.paper, &claim.ours, &claim.peers);
                format!("| {what} | {paper} | {ours} | {peers} | [{title}{link}, {commit} |\n")
            })
            .collect();
        self.save(CLAIMS, &with_claims(&text, &link, &rows.concat()))
    }

    fn save(&self, name: &str, text: &str) -> Result<()> {
        let file = self.directory.join(name);
        fs::write(&file, text).with_context(|| format!("write {}", file.display()))
    }
}

/// Replaces the rows of the table that have this link.
fn with_claims(text: &str, link: &str, rows: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_old = |line: &str| line.starts_with('|') && line.contains(link);
    // The rows of the table stay in their places.
    let at = lines
        .iter()
        .position(|line| is_old(line))
        .unwrap_or(lines.len());
    let (before, behind) = lines.split_at(at);
    let kept: String = behind
        .iter()
        .filter(|line| !is_old(line))
        .copied()
        .collect();
    format!("{}{rows}{kept}", before.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::frame::section::{Claim, METHOD};
    use crate::frame::table::Table;

    fn section(title: &'static str, ours: &str) -> Section {
        let mut table = Table::new(&["a"]);
        table.row([ours]);
        let claim = Claim {
            claim: "it is fast",
            paper: "2x",
            ours: ours.to_owned(),
            peers: "none".to_owned(),
        };
        Section {
            tables: vec![table],
            claims: vec![claim],
            ..Section::new(title, "How fast?", "By a clock.")
        }
    }

    #[test]
    fn a_run_replaces_what_it_has_measured() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let document = Document {
            directory: directory.path(),
        };
        let read = |name: &str| fs::read_to_string(directory.path().join(name));
        document.write("first", &section("First, one", "1.1"), "Here.", "abc")?;
        document.write("second", &section("Second", "2.2"), "Here.", "abc")?;
        let by_hand =
            read(CLAIMS)?.replace("# All claims", "# All claims\n\nBy hand, see ](first.md).");
        fs::write(directory.path().join(CLAIMS), by_hand)?;
        document.write("first", &section("First, one", "3.3"), "There.", "def")?;
        let (first, claims) = (read("first.md")?, read(CLAIMS)?);
        assert!(
            first.starts_with("# First, one\n") && first.contains("There."),
            "{first}"
        );
        assert!(first.contains("3.3") && !first.contains("1.1"), "{first}");
        assert!(read("second.md")?.contains("2.2"));
        let rows = [
            "By hand",
            "3.3 | none | [First, one](first.md), def",
            "2.2 | none | [Second](second.md), abc",
        ];
        let places: Vec<_> = rows.iter().map(|part| claims.find(part)).collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{places:?} {claims}"
        );
        assert!(!claims.contains("1.1"), "{claims}");
        Ok(())
    }

    #[test]
    fn each_experiment_has_a_page_with_a_short_method() -> Result<()> {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
        for experiment in EXPERIMENTS {
            let name = experiment.name;
            let page = pages.join(format!("{name}.md"));
            let text =
                fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
            // The page begins with a title, an empty line, and `**question?** method`.
            let first = text.lines().nth(2).unwrap_or_default();
            let method = first
                .strip_prefix("**")
                .and_then(|first| first.split_once("?** "));
            let (_, method) =
                method.with_context(|| format!("{name}: no question and method in {first}"))?;
            assert!(
                method.len() <= METHOD,
                "{name}: a method of {} bytes, not {METHOD}",
                method.len()
            );
        }
        Ok(())
    }
}
