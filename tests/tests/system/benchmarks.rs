//! docs/benchmarks.md, the short page that people write, agrees with the pages of the experiments.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The most words of the short page, which take five minutes to read.
const WORDS: usize = 1_500;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn page(name: &str) -> Result<String> {
    let file = docs().join("benchmarks").join(name);
    fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
}

/// Returns the names of the pages that experiments have written: these state a commit.
fn measured() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(docs().join("benchmarks"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A title, an empty line, `**question?** method`.
        let is_measured = |text: String| {
            text.lines()
                .nth(2)
                .is_some_and(|line| line.contains("?** "))
        };
        if name.ends_with(".md") && is_measured(page(&name)?) {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Returns the numbers of a text, `1,000` as `1000`.
fn numbers(text: &str) -> BTreeSet<String> {
    let plain = text.replace(',', "");
    let words = plain
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|word| word.trim_matches('.'));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Checks a row of the short page: the experiment's page has its figures, and both name the same
/// commit. Returns the page's name.
fn check(row: &str, claims: &str) -> Result<String> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [_, _, ours, peers, _, source] = cells[..] else {
        bail!("not six cells: {row}")
    };
    let (_, rest) = source.split_once("](benchmarks/").context("a link")?;
    let (name, commit) = rest
        .split_once("), ")
        .with_context(|| format!("a page and a commit: {row}"))?;
    let text = page(name)?;
    assert!(
        text.contains(&format!("Commit {commit}, ")),
        "{name} is not of commit {commit}: {row}"
    );
    let link = format!("]({name})");
    let rows: String = claims.lines().filter(|line| line.contains(&link)).collect();
    let (here, there) = (
        numbers(&format!("{ours} {peers}")),
        numbers(&(text + &rows)),
    );
    let unknown: Vec<_> = here.difference(&there).collect();
    assert!(
        unknown.is_empty(),
        "{name} does not have {unknown:?}: {row}"
    );
    Ok(name.to_owned())
}

#[test]
fn the_short_page_says_what_the_experiments_say() -> Result<()> {
    let (short, claims) = (
        fs::read_to_string(docs().join("benchmarks.md"))?,
        page("claims.md")?,
    );
    let words = short.split_whitespace().count();
    assert!(words <= WORDS, "{words} words, and {WORDS} are the most");
    let rows = short
        .lines()
        .filter(|line| line.starts_with('|') && line.contains("](benchmarks/"));
    let named = rows
        .map(|row| check(row, &claims))
        .collect::<Result<BTreeSet<_>>>()?;
    let measured = measured()?;
    assert!(measured.len() > 10, "{measured:?}");
    assert_eq!(named, measured, "each experiment has a row");
    Ok(())
}
