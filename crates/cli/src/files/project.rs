//! The project of a source, in which its build finds headers by include directories.

use std::cell::OnceCell;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

/// The folder that a project under version control has at its top.
const TOP: &str = ".git";
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
        let top = folder.ancestors().find(|folder| folder.join(TOP).exists());
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
        let headers = self.headers.get_or_init(|| headers(top));
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

/// Returns the headers below a folder, in the order of their paths.
fn headers(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![top.to_owned()], 0);
    while let Some(folder) = open.pop() {
        let entries: Vec<DirEntry> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        seen += entries.len();
        if seen > MOST {
            break;
        }
        for entry in entries {
            let (path, is_hidden) = (
                entry.path(),
                entry.file_name().as_encoded_bytes().starts_with(b"."),
            );
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !is_hidden => open.push(path),
                Ok(kind) if kind.is_file() && is_code(&path) => found.push(path),
                _ => {}
            }
        }
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
        // A folder without version control is no project.
        assert_eq!(Project::of(&top).header("near.h", false), None);
    }
}
