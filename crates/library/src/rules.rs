//! The rules of the library: the files of `probes/rules/`, embedded in the binary.

use serde::Serialize;
use twinprobe_api::{RuleDocument, parse_any_yaml};

use crate::library::RULES;

/// A rule of the library.
#[derive(Debug, Serialize)]
pub struct LibraryRule {
    pub name: String,
    /// The purpose of the rule.
    pub title: String,
    /// The condition for firing, and the actions.
    pub summary: String,
    pub rule: RuleDocument,
    /// The file of the rule, with its comments.
    #[serde(skip)]
    pub text: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the library has no rule {name:?}; it has {}", .known.join(", "))]
pub struct NoSuchRule {
    pub name: String,
    pub known: Vec<String>,
}

/// Returns all rules of the library, in the order of their names.
pub fn rules() -> Vec<LibraryRule> {
    let mut rules: Vec<LibraryRule> = RULES.iter().map(|(name, text)| rule(name, text)).collect();
    rules.sort_by(|a, b| a.name.cmp(&b.name));
    rules
}

/// Returns one rule of the library.
pub fn library_rule(name: &str) -> Result<LibraryRule, NoSuchRule> {
    let mut rules = rules();
    match rules.iter().position(|rule| rule.name == name) {
        Some(found) => Ok(rules.swap_remove(found)),
        None => {
            let known = rules.into_iter().map(|rule| rule.name).collect();
            Err(NoSuchRule {
                name: name.to_owned(),
                known,
            })
        }
    }
}

fn rule(name: &str, text: &'static str) -> LibraryRule {
    let comments: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix('#'))
        .map(str::trim)
        .collect();
    let (title, summary) = comments
        .split_first()
        .map_or(("", &[][..]), |(title, rest)| (*title, rest));
    LibraryRule {
        name: name.to_owned(),
        title: title.to_owned(),
        summary: summary.join(" ").trim().to_owned(),
        rule: parse_any_yaml(text.as_bytes()).expect("a test reads the rules"),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_says_what_it_is_for_and_watches_a_probe_of_the_library() {
        let rules = rules();
        assert_eq!(rules.len(), RULES.len());
        for LibraryRule {
            name,
            title,
            summary,
            rule,
            ..
        } in &rules
        {
            assert!(!title.is_empty() && summary.ends_with('.'), "{name}");
            crate::library::library_probe(&rule.watch).unwrap();
            assert_eq!(library_rule(name).unwrap().rule, *rule);
        }
        let error = library_rule("syn-floods").unwrap_err().to_string();
        assert!(
            error.starts_with("the library has no rule \"syn-floods\"; it has dns-amplification, "),
            "{error}"
        );
    }
}
