//! Rules about the code of the crates that no compiler checks: names of types, and ways out of
//! async.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::architecture::{files, root};

/// Types that each crate may have for itself.
const COMMON: [&str; 2] = ["Error", "Options"];

/// Returns the sources of the crates by their paths, without tests.
fn sources() -> Result<Vec<(PathBuf, String)>> {
    let mut sources = Vec::new();
    for path in files(&root().join("crates"), ".rs")? {
        if !path
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            let text = fs::read_to_string(&path)?;
            // Tests within a file are at its end.
            let code = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            sources.push((path, code.to_owned()));
        }
    }
    assert!(sources.len() > 700, "{} sources were read", sources.len());
    Ok(sources)
}

/// Private types count as well: a name with two meanings costs a reader as much in one file as in
/// two.
#[test]
fn no_two_types_of_the_crates_have_one_name() -> Result<()> {
    let mut places = BTreeMap::<String, Vec<PathBuf>>::new();
    for (path, text) in sources()? {
        for line in text.lines() {
            let declared = line
                .trim_start()
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub(super) ");
            let declared = declared.trim_start_matches("pub ");
            let words: Vec<&str> = declared
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .take(2)
                .collect();
            // An associated type has the name that its trait gives.
            let is_associated = declared.starts_with("type ") && line.starts_with(' ');
            if let ["struct" | "enum" | "trait" | "type" | "union", name] = words[..]
                && !is_associated
            {
                places
                    .entry(name.to_owned())
                    .or_default()
                    .push(path.clone());
            }
        }
    }
    assert!(places.len() > 1000, "{} types were found", places.len());
    places.retain(|name, places| places.len() > 1 && !COMMON.contains(&name.as_str()));
    assert!(places.is_empty(), "two types have one name: {places:#?}");
    Ok(())
}

/// Async code may leave the async world only by tokio's blocking work, and by threads that have a
/// name.
#[test]
fn a_thread_has_a_name() -> Result<()> {
    let mut threads = 0;
    for (path, text) in sources()? {
        for way in ["thread::spawn(", "block_in_place("] {
            assert!(!text.contains(way), "{} has {way}", path.display());
        }
        for (at, _) in text.match_indices("thread::Builder::new()") {
            threads += 1;
            let call: String = text[at..].chars().take_while(|c| *c != ';').collect();
            assert!(
                call.contains(".name("),
                "{}: a thread without a name: {call}",
                path.display()
            );
        }
    }
    assert!(threads > 8, "{threads} threads were found");
    Ok(())
}
