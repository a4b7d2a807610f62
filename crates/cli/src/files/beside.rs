//! The files that a source includes from its own folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// The header that the daemon makes of the types of its own kernel. That of another one is large, and does not fit.
const OF_THE_KERNEL: &str = "vmlinux.h";

/// A file, and the reason why it can't be read.
type UnreadFile = (PathBuf, io::Error);

/// Returns the files that a source includes by names in quotation marks, and those that these include: paths from the source's
/// folder, as the daemon gets them, and texts. Files that are not there, or not below the folder, are left out: if the compiler
/// needs them, it says so with the line.
pub fn beside(source: &Path, text: &str) -> Result<BTreeMap<String, String>, UnreadFile> {
    let folder = match source.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let inside = folder.canonicalize().map_err(|error| (folder.to_owned(), error))?;
    let (mut files, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut open = vec![(String::new(), text.to_owned())];
    while let Some((directory, text)) = open.pop() {
        for name in included(&text).filter(|name| *name != OF_THE_KERNEL) {
            let places = [within(&directory, name), within("", name)];
            let found = places.into_iter().flatten().find(|path| {
                let path = folder.join(path).canonicalize();
                path.is_ok_and(|path| path.starts_with(&inside) && path.is_file())
            });
            let Some(path) = found.filter(|path| seen.insert(path.clone())) else { continue };
            let file = folder.join(&path);
            let text = std::fs::read_to_string(&file).map_err(|error| (file, error))?;
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            open.push((directory.to_owned(), text.clone()));
            files.insert(path, text);
        }
    }
    Ok(files)
}

/// Returns the names in quotation marks that a text includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let directive = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        directive.trim_start().strip_prefix('"')?.split_once('"').map(|(name, _)| name)
    })
}

/// Returns the path of a name in a directory, without `.` and `..`; `None` if it leads out of the folder.
fn within(directory: &str, name: &str) -> Option<String> {
    if name.starts_with('/') {
        return None;
    }
    let mut parts = Vec::new();
    for part in directory.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_below_the_folder_of_the_source_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("probe/lib/deep")).unwrap();
        fs::create_dir_all(at("probe/..data")).unwrap();
        for (name, text) in [
            ("outside.h", "int outside;"),
            ("probe/sizes.h", "#include \"lib/a.h\"\n#include \"../outside.h\"\n"),
            ("probe/lib/a.h", "  #  include\t\"deep/b.h\" // a comment\n#include \"sizes.h\"\n"),
            ("probe/lib/deep/b.h", "#include \"../c.h\"\n#include \"b.h\"\n"),
            ("probe/lib/c.h", "int c;"),
            ("probe/vmlinux.h", "the types of another kernel"),
            ("probe/unused.h", "int unused;"),
            ("probe/..data/linked.h", "int linked;"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        // Links as in a volume of Kubernetes; and one that leads out.
        symlink("..data/linked.h", at("probe/linked.h")).unwrap();
        symlink("../outside.h", at("probe/way-out.h")).unwrap();
        let source = "#include <unused.h>\n#include \"sizes.h\"\n#include \"vmlinux.h\"\n#include \"linked.h\"\n\
            #include \"way-out.h\"\n#include \"/etc/passwd\"\n#include \"missing.h\"\n#include \"lib\"\n";
        let files = beside(&at("probe/probe.bpf.c"), source).unwrap();
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["lib/a.h", "lib/c.h", "lib/deep/b.h", "linked.h", "sizes.h"]);
        assert_eq!(files["linked.h"], "int linked;");
        fs::write(at("probe/lib/c.h"), b"\xff").unwrap();
        let (file, error) = beside(&at("probe/probe.bpf.c"), source).unwrap_err();
        assert!(file.ends_with("lib/c.h") && error.kind() == io::ErrorKind::InvalidData, "{error}");
    }

    #[test]
    fn paths_stay_in_the_folder() {
        assert_eq!(within("", "a/./b//c.h").as_deref(), Some("a/b/c.h"));
        assert_eq!(within("a/b", "../c.h").as_deref(), Some("a/c.h"));
        for (directory, name) in [("", "../c.h"), ("a", "../../c.h"), ("a", "/c.h")] {
            assert_eq!(within(directory, name), None, "{directory} {name}");
        }
    }
}
