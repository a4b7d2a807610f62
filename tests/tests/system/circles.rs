//! No files of a crate use each other in a circle. So a reader can read each file after the files
//! that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Meta, UseTree};

use crate::architecture::{files, root};

/// The files of a crate, by the path of their module.
type Modules = BTreeMap<Vec<String>, PathBuf>;

/// The modules that a file names.
struct Names<'a> {
    modules: &'a Modules,
    own: &'a [String],
    found: BTreeSet<Vec<String>>,
}

impl Names<'_> {
    /// Notes the module that a path of names leads into.
    fn note(&mut self, names: &[String]) {
        let supers = names.iter().take_while(|name| *name == "super").count();
        let is_child = || self.modules.contains_key(&[self.own, &names[..1]].concat());
        let path = match names[0].as_str() {
            "crate" => names[1..].to_vec(),
            "self" => [self.own, &names[1..]].concat(),
            "super" if supers <= self.own.len() => {
                [&self.own[..self.own.len() - supers], &names[supers..]].concat()
            }
            _ if is_child() => [self.own, names].concat(),
            _ => return,
        };
        let module = (0..=path.len())
            .rev()
            .map(|end| &path[..end])
            .find(|path| self.modules.contains_key(*path));
        self.found.extend(
            module
                .filter(|module| *module != self.own)
                .map(<[String]>::to_vec),
        );
    }

    fn tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.note(&with(&name.ident)),
            UseTree::Rename(name) => self.note(&with(&name.ident)),
            UseTree::Glob(_) => self.note(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_test = matches!(item, Item::Mod(module) if module.attrs.iter().any(
            |attribute| matches!(&attribute.meta, Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
        ));
        if !is_test {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if matches!(names[0].as_str(), "crate" | "self" | "super") && names.len() > 1 {
            self.note(&names);
        }
        visit::visit_path(self, path);
    }
}

fn modules(source: &Path) -> Result<Modules> {
    let mut modules = Modules::new();
    for path in files(source, ".rs")? {
        let of = path.strip_prefix(source)?.with_extension("");
        let mut names: Vec<String> = of
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.pop_if(|name| ["mod", "lib", "main"].contains(&name.as_str()));
        if !names.iter().any(|name| name == "tests") {
            modules.insert(names, path);
        }
    }
    Ok(modules)
}

/// Returns the modules that each module names.
fn edges(modules: &Modules) -> Result<BTreeMap<Vec<String>, BTreeSet<Vec<String>>>> {
    let mut edges = BTreeMap::new();
    for (own, path) in modules {
        let file = syn::parse_file(&fs::read_to_string(path)?)
            .with_context(|| path.display().to_string())?;
        let mut names = Names {
            modules,
            own,
            found: BTreeSet::new(),
        };
        names.visit_file(&file);
        edges.insert(own.clone(), names.found);
    }
    Ok(edges)
}

/// Returns the modules in circles: repeatedly removes modules that use no others, or that no others
/// use, and keeps the rest.
fn circles(
    mut edges: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    loop {
        let before = edges.len();
        edges.retain(|_, named| !named.is_empty());
        let named: BTreeSet<Vec<String>> = edges.values().flatten().cloned().collect();
        edges.retain(|own, _| named.contains(own));
        let left: BTreeSet<Vec<String>> = edges.keys().cloned().collect();
        edges
            .values_mut()
            .for_each(|named| named.retain(|module| left.contains(module)));
        if edges.len() == before {
            return edges;
        }
    }
}

#[test]
fn no_files_use_each_other_in_a_circle() -> Result<()> {
    let (mut found, mut read) = (String::new(), 0);
    let mut sources = vec![root().join("bench/src")];
    for entry in fs::read_dir(root().join("crates"))? {
        sources.push(entry?.path().join("src"));
    }
    assert!(sources.len() > 10, "{sources:?}");
    for source in sources {
        let edges = edges(&modules(&source)?)?;
        read += edges.values().map(BTreeSet::len).sum::<usize>();
        for (own, named) in circles(edges) {
            let named: Vec<String> = named.iter().map(|module| module.join("::")).collect();
            found += &format!(
                "{}: {} -> {}\n",
                source.display(),
                own.join("::"),
                named.join(", ")
            );
        }
    }
    assert!(read > 500, "{read} uses were read");
    assert!(
        found.is_empty(),
        "files of circles, and what they use of each other:\n{found}"
    );
    Ok(())
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let graph = |text: &str| {
        let edges = text.split(' ').filter_map(|edge| edge.split_once('>'));
        let mut graph = BTreeMap::<Vec<String>, BTreeSet<Vec<String>>>::new();
        for (from, to) in edges {
            graph
                .entry(vec![from.to_owned()])
                .or_default()
                .insert(vec![to.to_owned()]);
            graph.entry(vec![to.to_owned()]).or_default();
        }
        circles(graph).into_keys().flatten().collect::<String>()
    };
    assert_eq!(graph("a>b b>c a>c c>d"), "");
    assert_eq!(graph("a>b b>c c>a c>d e>a"), "abc");
}
