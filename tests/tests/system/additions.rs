//! An addition touches the files that CONTRIBUTING.md names: each list is compared with an example
//! that is in the tree.

use std::fs;

use anyhow::{Context as _, Result};

use crate::architecture::{alternatives, files, root};

/// The heading of a list, words that only the example's files contain, and the most places in the list for
/// the usual case.
const EXAMPLES: [(&str, &[&str], usize); 8] = [
    ("A map type", &["LruPercpuHash", "lru_percpu_hash"], 4),
    ("An aggregation", &["Aggregation::Avg", "Self::Avg", "\"avg\"", "sum, avg"], 4),
    ("A format", &["Format::Xml", "Self::Xml =>", "[json, xml"], 5),
    ("A hook", &["Attachment::Tcx", "Self::Tcx"], 4),
    ("An endpoint", &["CapabilityReport", "GET /v1/capabilities", "daemon::capabilities"], 5),
    ("A configuration field", &["exclude_interfaces"], 5),
    ("A command", &["RollbackCommand", "Command::Rollback", "rollback::"], 3),
    ("A receiver", &["NatsOptions", "NatsReceiver"], 2),
];

/// The most places of any list, including unusual cases such as a hook at a new place on the packet's way.
const MOST: usize = 8;

/// The places where an addition may have to be made. Tests do not count: the compiler shows where they
/// need a change.
const SEARCHED: [(&str, &str); 4] =
    [("crates", ".rs"), ("console/src", ".tsx"), ("console/src", ".ts"), ("api", ".yaml")];

#[test]
fn an_addition_touches_what_the_page_for_contributors_names() -> Result<()> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md"))?;
    for (heading, words, most) in EXAMPLES {
        let (_, section) = text.split_once(&format!("\n## {heading}\n")).context(heading)?;
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let usual = section.lines().take_while(|line| !line.ends_with("also:"));
        let places = usual.filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count();
        assert!((1..=most).contains(&places), "{heading}: {places} places");
        let all = section.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count();
        assert!(all <= MOST, "{heading}: {all} places");
        let named: Vec<String> =
            section.split('`').skip(1).step_by(2).flat_map(alternatives).map(|name| stem(&name)).collect();
        let mut found = 0;
        for (directory, ending) in SEARCHED {
            for file in files(&root().join(directory), ending)? {
                let path = file.strip_prefix(root())?.to_string_lossy().into_owned();
                if path.contains("/tests") || path.contains("/target/") {
                    continue;
                }
                let content = fs::read_to_string(&file)?;
                let content = content.split("#[cfg(test)]").next().unwrap_or_default();
                if words.iter().any(|word| content.contains(word)) {
                    found += 1;
                    let is_named = named.iter().any(|name| path.contains(name));
                    assert!(
                        is_named,
                        "{heading}: {path} has one of {words:?}; CONTRIBUTING.md names {named:?}"
                    );
                }
            }
        }
        assert!(found > 0, "{heading}: the example {words:?} is in {found} files");
    }
    Ok(())
}

/// The part of a path before a placeholder for a name.
fn stem(name: &str) -> String {
    name.split("NAME").next().unwrap_or(name).trim_start_matches("../").to_owned()
}
