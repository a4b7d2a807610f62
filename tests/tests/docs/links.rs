//! Every link of every Markdown file leads somewhere, and the site has every page once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::schema::anchor;

/// Folders that have no Markdown of ours.
const ELSEWHERE: &[&str] = &["target", "node_modules", "dist", ".git"];

const SUMMARY: &str = "docs/SUMMARY.md";

/// A link of a page: its line from 1, the file that it names (empty: the page itself) and the place
/// in it.
struct Link {
    line: usize,
    file: String,
    place: Option<String>,
}

struct Page {
    links: Vec<Link>,
    anchors: BTreeSet<String>,
}

/// Returns the Markdown files of the repository by their paths in it.
fn read(root: &Path) -> Result<BTreeMap<PathBuf, Page>> {
    let (mut folders, mut pages) = (vec![root.to_owned()], BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_symlink() || ELSEWHERE.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.insert(
                    path.strip_prefix(root)?.to_owned(),
                    parse(&fs::read_to_string(&path)?),
                );
            }
        }
    }
    Ok(pages)
}

fn parse(text: &str) -> Page {
    let mut page = Page {
        links: Vec::new(),
        anchors: BTreeSet::new(),
    };
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        if let Some(title) = line.strip_prefix('#') {
            let name = anchor(title.trim_start_matches('#').trim());
            let free = (0..).map(|n| {
                if n == 0 {
                    name.clone()
                } else {
                    format!("{name}-{n}")
                }
            });
            page.anchors
                .extend(free.into_iter().find(|name| !page.anchors.contains(name)));
        }
        // A text between backticks is not a link.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            let Some((target, _)) = piece.split_once(')') else {
                continue;
            };
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, place) = target
                .split_once('#')
                .map_or((target, None), |(file, place)| (file, Some(place)));
            page.links.push(Link {
                line: number + 1,
                file: file.into(),
                place: place.map(str::to_owned),
            });
        }
    }
    page
}

/// Returns the path in the repository that a link of a page names.
fn target(page: &Path, link: &Link) -> PathBuf {
    if link.file.is_empty() {
        return page.to_owned();
    }
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(&link.file).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

fn root() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?)
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let root = root()?;
    let pages = read(&root)?;
    let mut dead = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            let target = target(path, link);
            let place = |place: &String| {
                pages
                    .get(&target)
                    .is_none_or(|page| page.anchors.contains(place))
            };
            if !root.join(&target).exists() || !link.place.as_ref().is_none_or(place) {
                dead.push(format!(
                    "{}:{}: {}#{}",
                    path.display(),
                    link.line,
                    link.file,
                    link.place.as_deref().unwrap_or("")
                ));
            }
        }
    }
    assert!(
        dead.is_empty() && pages.len() > 40,
        "links that lead nowhere:\n{}",
        dead.join("\n")
    );
    Ok(())
}

#[test]
fn the_site_has_every_page_once_and_no_link_out_of_it() -> Result<()> {
    let pages = read(&root()?)?;
    let summary = &pages.get(Path::new(SUMMARY)).context(SUMMARY)?.links;
    let listed: Vec<PathBuf> = summary
        .iter()
        .map(|link| target(Path::new(SUMMARY), link))
        .collect();
    let once: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let in_docs = pages
        .keys()
        .filter(|path| path.starts_with("docs") && *path != Path::new(SUMMARY));
    let missing: Vec<_> = in_docs.filter(|path| !once.contains(path)).collect();
    assert!(missing.is_empty(), "{SUMMARY} lacks {missing:?}");
    // The site shows Markdown only if it is listed, and no folders.
    let out: Vec<String> = listed
        .iter()
        .flat_map(|path| pages[path].links.iter().map(move |link| (path, link)))
        .filter(|(path, link)| {
            let target = target(path, link);
            let markdown = target
                .extension()
                .is_some_and(|extension| extension == "md");
            if markdown {
                !once.contains(&target)
            } else {
                target.extension().is_none() && !target.ends_with("Containerfile")
            }
        })
        .map(|(path, link)| format!("{}:{}: {}", path.display(), link.line, link.file))
        .collect();
    assert!(
        out.is_empty(),
        "links to what the site does not have:\n{}",
        out.join("\n")
    );
    Ok(())
}
