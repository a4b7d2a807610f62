//! An addition touches the files that CONTRIBUTING.md names, one in each line of a list. Each list
//! is compared with an example that is in the tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::architecture::{alternatives, files, root};

/// The heading of a list, words that only the files of its example contain, and the number of files
/// for the usual case and for all cases of the list.
const EXAMPLES: [(&str, &[&str], usize, usize); 8] = [
    (
        "A map type",
        &["LruPercpuHash", "LRU_PERCPU_HASH", "- lru_percpu_hash"],
        4,
        8,
    ),
    (
        "An aggregation",
        &[
            "Aggregation::Avg",
            "Self::Avg",
            "\"avg\"",
            "sum, avg",
            "`avg`",
        ],
        4,
        4,
    ),
    (
        "A format",
        &[
            "Format::Xml",
            "Self::Xml",
            "DocumentSink for Xml",
            "mod xml",
            "\"xml\"",
            "json, xml",
            "`xml`",
            "|xml",
        ],
        5,
        5,
    ),
    (
        "A hook",
        &[
            "TcEgress",
            "tcx::",
            "= \"tcx\"",
            "=> \"tcx\"",
            "mod tcx",
            "tcx,",
            "tcx`",
            "|tcx",
            "TCX |",
        ],
        6,
        8,
    ),
    (
        "An endpoint",
        &[
            "CapabilityReport",
            "daemon::capabilities",
            " /v1/capabilities:",
            "/ `GET /v1/capabilities`",
        ],
        5,
        5,
    ),
    ("A configuration field", &["exclude_interfaces"], 5, 5),
    (
        "A command",
        &["RollbackCommand", "rollback::", "mod rollback"],
        3,
        3,
    ),
    (
        "A receiver",
        &["NatsOptions", "NatsReceiver", "mod nats"],
        2,
        2,
    ),
];

/// The places where an addition may have to be made. Tests do not count: the compiler shows where
/// they need a change.
const SEARCHED: [(&str, &str); 5] = [
    ("crates", ".rs"),
    ("console/src", ".ts"),
    ("console/src", ".tsx"),
    ("api", ".yaml"),
    ("docs", ".md"),
];

/// Folders of pages that tests or experiments write, and of pages with one subject.
const OTHERS: [&str; 5] = [
    "/tests",
    "/target/",
    "docs/reference/",
    "docs/benchmarks/",
    "docs/how-to/",
];

/// Returns the files that have one of the words. Files in the folder of a new module count as the
/// module; `named` has the folders of new modules.
fn having(words: &[&str], named: &[String]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for (directory, ending) in SEARCHED {
        for file in files(&root().join(directory), ending)? {
            let path = file.strip_prefix(root())?;
            if OTHERS
                .iter()
                .any(|other| path.to_string_lossy().contains(other))
            {
                continue;
            }
            let content = fs::read_to_string(&file)?;
            let code = content
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            if words.iter().any(|word| code.contains(word)) {
                found.insert(path.to_owned());
            }
        }
    }
    let is_new = |path: &Path| {
        named
            .iter()
            .any(|name| name.ends_with('/') && path.to_string_lossy().contains(name))
    };
    let modules: BTreeSet<PathBuf> = found.iter().filter(|path| is_new(path)).cloned().collect();
    found.retain(|path| {
        !path
            .parent()
            .is_some_and(|folder| modules.contains(&folder.with_extension("rs")))
    });
    Ok(found)
}

#[test]
fn an_addition_touches_what_the_page_for_contributors_names() -> Result<()> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md"))?;
    for (heading, words, usual, all) in EXAMPLES {
        let (_, section) = text
            .split_once(&format!("\n## {heading}\n"))
            .context(heading)?;
        let section = section
            .split_once("\n## ")
            .map_or(section, |(section, _)| section);
        let is_place = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let first = section
            .lines()
            .take_while(|line| !line.ends_with("also:"))
            .filter(is_place)
            .count();
        assert_eq!(first, usual, "{heading}: the places of the usual case");
        assert_eq!(
            section.lines().filter(is_place).count(),
            all,
            "{heading}: all places"
        );
        let named: Vec<String> = section
            .split('`')
            .skip(1)
            .step_by(2)
            .flat_map(alternatives)
            .map(|name| stem(&name))
            .collect();
        let found = having(words, &named)?;
        for path in &found {
            let path = path.to_string_lossy();
            let is_named = named.iter().any(|name| path.contains(name));
            assert!(
                is_named,
                "{heading}: {path} has one of {words:?}; CONTRIBUTING.md names {named:?}"
            );
        }
        // One place of a list may be for other cases than the example.
        assert!(
            (usual - 1..=all).contains(&found.len()),
            "{heading}: the example is in {found:?}"
        );
    }
    Ok(())
}

/// The part of a path before a placeholder for a name.
fn stem(name: &str) -> String {
    name.split("NAME")
        .next()
        .unwrap_or(name)
        .trim_start_matches("../")
        .to_owned()
}
