//! The commands of every page run, and print the output on the page. `PAGES=NAME,...` chooses pages
//! by a part of their path; `UPDATE_GOLDEN=1` writes the new output into the pages where it
//! differs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context as _, Result};

use crate::compare::{line_matches, lines_match};
use crate::page::{self, Step};
use crate::shell;

/// The number of pages that are run at the same time: most of their time they wait for the kernel.
const AT_ONCE: usize = 3;

/// Returns the pages that are run: the README and all below `docs/`.
fn pages() -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let (mut folders, mut pages) = (vec![root.join("docs")], vec![root.join("README.md")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    if let Ok(chosen) = env::var("PAGES") {
        pages.retain(|page| {
            chosen
                .split(',')
                .any(|part| page.to_string_lossy().contains(part))
        });
    }
    pages.sort();
    Ok(pages)
}

#[test]
fn every_command_prints_what_its_page_shows() -> Result<()> {
    let pages = pages()?;
    assert!(!pages.is_empty(), "no page is chosen");
    let (next, wrong) = (Mutex::new(pages.into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(page) = next.lock().expect("no thread panics").next() else {
                        return;
                    };
                    let mistakes = check(&page)
                        .unwrap_or_else(|error| vec![format!("{}: {error:#}", page.display())]);
                    wrong.lock().expect("no thread panics").extend(mistakes);
                }
            });
        }
    });
    let wrong = wrong.into_inner()?;
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// Runs a page and returns its errors.
fn check(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let steps = page::steps(&text)?;
    let commands = || {
        steps.iter().filter_map(|step| {
            if let Step::Run(command) = step {
                Some(command)
            } else {
                None
            }
        })
    };
    if commands().count() == 0 {
        return Ok(Vec::new());
    }
    let printed = shell::run(&steps)?;
    let (mut mistakes, mut changes) = (Vec::new(), Vec::new());
    for (number, command) in commands().enumerate() {
        let Some(came) = printed.get(number) else {
            mistakes.push(format!(
                "{}:{}: `{}` did not end",
                path.display(),
                command.line,
                command.text
            ));
            break;
        };
        if !lines_match(&command.shown, came) {
            mistakes.push(format!(
                "{}:{}: $ {}\nthe page shows:\n{}\nbut it prints:\n{}",
                path.display(),
                command.line,
                command.text,
                command.shown.join("\n"),
                came.join("\n")
            ));
            changes.push((command.place.clone(), kept(&command.shown, came)));
        }
    }
    if env::var_os("UPDATE_GOLDEN").is_some() && printed.len() == commands().count() {
        fs::write(path, page::with_outputs(&text, &changes))?;
        return Ok(Vec::new());
    }
    Ok(mistakes)
}

/// Returns the real output, with the lines of the page where they match.
fn kept(shown: &[String], came: &[String]) -> Vec<String> {
    let fits = |(at, line): (usize, &String)| {
        shown
            .get(at)
            .filter(|shown| line_matches(shown, line))
            .unwrap_or(line)
            .clone()
    };
    if shown.len() == came.len() {
        came.iter().enumerate().map(fits).collect()
    } else {
        came.to_vec()
    }
}
