//! The project of a source, in which its build finds headers by include directories.

use std::cell::OnceCell;
use std::env;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

/// The folder that a project under version control has at its top.
const TOP: &str = ".git";
/// The files, by the beginnings of their names in capitals, that other projects have at their top,
/// such as an unpacked archive. Folders below the top may have some of them, too.
const MARKS: [&str; 11] = [
    "CARGO.TOML",
    "CMAKELISTS.TXT",
    "CONFIGURE",
    "COPYING",
    "GO.MOD",
    "LICENCE",
    "LICENSE",
    "MAKEFILE",
    "MESON.BUILD",
    "PACKAGE.JSON",
    "README",
];
/// The most folders above a source in which the top of a project is searched.
const DEEPEST: usize = 8;
/// The most files and folders of a project that are looked at.
const MOST: usize = 50_000;
/// Headers in brackets that the daemon's host has, and folders of such headers. A project's copies
/// of them are not sent.
const OF_HOST: [&str; 24] = [
    "arpa/",
    "asm/",
    "asm-generic/",
    "assert.h",
    "bits/",
    "bpf/bpf_core_read.h",
    "bpf/bpf_endian.h",
    "bpf/bpf_helper_defs.h",
    "bpf/bpf_helpers.h",
    "bpf/bpf_tracing.h",
    "ctype.h",
    "errno.h",
    "gnu/",
    "inttypes.h",
    "limits.h",
    "linux/",
    "net/",
    "netinet/",
    "std",
    "string.h",
    "sys/",
    "time.h",
    "uapi/",
    "unistd.h",
];

/// The headers of a project.
pub struct Project {
    folder: PathBuf,
    /// The folder at the project's top; `None` if the source belongs to no project.
    top: Option<PathBuf>,
    headers: OnceCell<Vec<PathBuf>>,
}

impl Project {
    /// Returns the project of the sources in a folder, which is an absolute path without links.
    pub fn of(folder: &Path) -> Self {
        let versioned = folder.ancestors().find(|folder| folder.join(TOP).exists());
        let top = versioned.or_else(|| marked(folder));
        Self {
            folder: folder.to_owned(),
            top: top.map(Path::to_owned),
            headers: OnceCell::new(),
        }
    }

    /// Returns the header that a source includes by this name: the one nearest to the source's
    /// folder. There is none if several are as near, and differ.
    pub fn header(&self, name: &str, in_brackets: bool) -> Option<PathBuf> {
        let top = self.top.as_deref()?;
        if in_brackets && is_of_host(name) {
            return None;
        }
        let headers = self.headers.get_or_init(|| headers(&self.folder, top));
        let by_name = headers.iter().filter(|header| header.ends_with(name));
        let near = |header: &Path| {
            let pairs = header.components().zip(self.folder.components());
            pairs.take_while(|(one, other)| one == other).count()
        };
        let nearest = by_name.clone().map(|header| near(header)).max()?;
        let mut all = by_name.filter(|header| near(header) == nearest);
        let first = all.next()?;
        let text = |header: &Path| fs::read(header).ok();
        let others: Vec<&PathBuf> = all.collect();
        let is_one = others.iter().all(|other| text(other) == text(first));
        is_one.then(|| first.clone())
    }
}

/// Tells whether a header in brackets is one of the daemon's host.
pub fn is_of_host(name: &str) -> bool {
    OF_HOST.iter().any(|begin| name.starts_with(begin))
}

/// Tells whether a file that is not in the source's folder has code, by its name.
pub fn is_code(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "h" || ending == "c")
}

/// Returns the highest folder above a source that has a file of [`MARKS`]. Home folders, and the
/// folders at the top of the file system, belong to no project.
fn marked(folder: &Path) -> Option<&Path> {
    let home = env::home_dir();
    let is_shared = |folder: &Path| {
        let is_high = folder.components().count() < 3;
        is_high || home.as_ref().is_some_and(|home| home.starts_with(folder))
    };
    let is_marked = |folder: &&Path| {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| {
                let name = entry.file_name().to_string_lossy().to_uppercase();
                MARKS.iter().any(|mark| name.starts_with(mark))
            })
    };
    let above = folder.ancestors().take(DEEPEST);
    above
        .take_while(|folder| !is_shared(folder))
        .filter(is_marked)
        .last()
}

/// Returns the headers below `top` in the order of their paths. Of a project with too many files,
/// these are the headers near `folder`, which is below `top`.
fn headers(folder: &Path, top: &Path) -> Vec<PathBuf> {
    let (mut found, mut seen, mut done) = (Vec::new(), 0, None);
    for above in folder
        .ancestors()
        .take_while(|above| above.starts_with(top))
    {
        let mut open = vec![above.to_owned()];
        while let Some(next) = open.pop() {
            let entries: Vec<DirEntry> =
                fs::read_dir(next).into_iter().flatten().flatten().collect();
            seen += entries.len();
            if seen > MOST {
                break;
            }
            for entry in entries {
                let path = entry.path();
                let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && !is_hidden && done != Some(&*path) => {
                        open.push(path);
                    }
                    Ok(kind) if kind.is_file() && is_code(&path) => found.push(path),
                    _ => {}
                }
            }
        }
        done = Some(above);
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_header_of_a_project_counts() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let write = |name: &str, text: &str| {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, text) in [
            ("outside.h", ""),
            ("project/.git/config", ""),
            ("project/.git/hidden.h", ""),
            ("project/src/probe.c", ""),
            ("project/src/include/near.h", "near"),
            ("project/include/near.h", "far"),
            ("project/include/lib/parse.h", ""),
            ("project/include/linux/bpf.h", ""),
            ("project/copies/libc/unistd.h", ""),
            ("project/one/same.h", "same"),
            ("project/two/same.h", "same"),
            ("project/one/other.h", "one"),
            ("project/two/other.h", "two"),
        ] {
            write(name, text);
        }
        let project = Project::of(&top.join("project/src"));
        let found = |name: &str| {
            let header = project.header(name, false)?;
            header
                .strip_prefix(&top)
                .ok()
                .map(|path| path.display().to_string())
        };
        assert_eq!(
            found("near.h").as_deref(),
            Some("project/src/include/near.h")
        );
        assert_eq!(
            found("lib/parse.h").as_deref(),
            Some("project/include/lib/parse.h")
        );
        assert_eq!(found("same.h").as_deref(), Some("project/one/same.h"));
        for missing in ["other.h", "outside.h", "hidden.h", "arse.h"] {
            assert_eq!(found(missing), None, "{missing}");
        }
        for of_host in ["linux/bpf.h", "unistd.h"] {
            assert!(
                found(of_host).is_some() && project.header(of_host, true).is_none(),
                "{of_host}"
            );
        }
        // Nothing shows that this folder is a project.
        assert_eq!(Project::of(&top).header("near.h", false), None);
    }

    #[test]
    fn an_unpacked_archive_is_a_project() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        for folder in ["archive/src/kernel", "archive/include", "other"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        for name in [
            "archive/ReadMe.md",
            "archive/src/Makefile",
            "archive/include/lines.h",
            "archive/src/lines.h",
            "archive/include/far.h",
            "other/outside.h",
        ] {
            fs::write(top.join(name), name).unwrap();
        }
        let project = Project::of(&top.join("archive/src/kernel"));
        let found = |name: &str| project.header(name, false);
        assert_eq!(found("lines.h"), Some(top.join("archive/src/lines.h")));
        assert_eq!(found("far.h"), Some(top.join("archive/include/far.h")));
        assert_eq!(found("outside.h"), None);
        let all = headers(&top.join("archive/src/kernel"), &top.join("archive"));
        let names = ["include/far.h", "include/lines.h", "src/lines.h"];
        assert_eq!(all, names.map(|name| top.join("archive").join(name)));
        // The top of the file system is shared by many.
        assert_eq!(marked(Path::new("/usr")), None);
    }
}
