//! The files that a source includes from its own folder, and from others of its project.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use twinprobe_ebpf_common::unit::{inclusions, inside_of, is_vmlinux};

use crate::files::project::{Project, is_code, is_of_host};

/// The least size in bytes of a file with all types of a kernel.
const TYPES: u64 = 256 << 10;

/// A file, and the reason why it can't be read.
type UnreadFile = (PathBuf, io::Error);

/// A file that a source includes.
#[derive(Debug)]
pub struct IncludedFile {
    pub path: PathBuf,
    pub text: String,
}

/// Returns the files that a source includes, and those that these include, by their paths from the
/// source's folder, as the daemon gets them. Missing files are left out: if the compiler needs one,
/// its error has the line. A header that a name with `../` reaches above the folder is sent as one
/// in it, unless the folder has one by that name. Other headers come from the project.
pub fn beside(source: &Path, text: &str) -> Result<BTreeMap<String, IncludedFile>, UnreadFile> {
    let folder = match source.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let inside = folder
        .canonicalize()
        .map_err(|error| (folder.to_owned(), error))?;
    let project = Project::of(&inside);
    let (mut files, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut open = vec![(String::new(), folder.to_owned(), text.to_owned())];
    while let Some((directory, here, text)) = open.pop() {
        let is_above = here
            .canonicalize()
            .is_ok_and(|here| !here.starts_with(&inside));
        for (name, in_brackets) in inclusions(&text) {
            if is_above && in_brackets && is_of_host(name) {
                continue;
            }
            let (inner, may_leave) = (inside_of(name), is_above || name.starts_with("../"));
            let places = [
                (within(&directory, name), here.join(name)),
                (within("", name), folder.join(name)),
                (within("", inner), folder.join(inner)),
                (within("", inner), here.join(name)),
            ];
            let found = places.into_iter().find_map(|(path, file)| {
                let real = file.canonicalize().ok().filter(|real| real.is_file())?;
                path.filter(|_| real.starts_with(&inside) || may_leave && is_code(&real))
                    .map(|path| (path, file))
            });
            let found = found.or_else(|| within("", inner).zip(project.header(inner, in_brackets)));
            let Some((path, file)) = found.filter(|(path, _)| seen.insert(path.clone())) else {
                continue;
            };
            // The daemon makes the types of its own kernel. Types of another kernel do not fit.
            // They are far longer than a header of a project that chooses among such files, or that
            // declares a few types.
            let length = std::fs::metadata(&file)
                .map_err(|error| (file.clone(), error))?
                .len();
            if is_vmlinux(&path) && length > TYPES {
                continue;
            }
            let text = std::fs::read_to_string(&file).map_err(|error| (file.clone(), error))?;
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let here = file.parent().unwrap_or(folder).to_owned();
            open.push((directory.to_owned(), here, text.clone()));
            files.insert(path, IncludedFile { path: file, text });
        }
    }
    Ok(files)
}

/// Returns the path of a name in a directory, without `.` and `..`; `None` if it leads out of the
/// folder.
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

    /// The files of a project whose probe includes files of its own folder and of others.
    const PROJECT: [(&str, &str); 15] = [
        ("outside.h", "int outside;"),
        (
            "probe/sizes.h",
            "#include \"lib/a.h\"\n#include \"../outside.h\"\n",
        ),
        (
            "probe/lib/a.h",
            "  #  include\t\"deep/b.h\" // a comment\n#include \"sizes.h\"\n",
        ),
        (
            "probe/lib/deep/b.h",
            "#include \"../c.h\"\n#include \"b.h\"\n",
        ),
        ("probe/lib/c.h", "int c;"),
        ("probe/lib/vmlinux.h", "typedef unsigned int __u32;"),
        ("probe/unused.h", "int unused;"),
        (
            "probe/lib/brackets.h",
            "#include <linux/bpf.h>\n#include \"../../../common/shared.h\"\n",
        ),
        ("common/shared.h", "int outside;"),
        (
            "types/above.h",
            "#include \"near.h\"\n#include \"../types/deep/below.h\"\n#include \"secret\"\n",
        ),
        ("types/near.h", "int near;"),
        ("types/deep/below.h", "int below;"),
        ("types/secret", "not a header"),
        ("probe/common/shared.h", "int shared;"),
        ("probe/..data/linked.h", "int linked;"),
    ];

    #[test]
    fn included_files_are_found_below_and_headers_above_the_folder_of_the_source() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("probe/lib/deep")).unwrap();
        for folder in ["probe/..data", "common", "probe/common", "types/deep"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (name, text) in PROJECT {
            fs::write(at(name), text).unwrap();
        }
        for name in ["probe/vmlinux.h", "probe/lib/vmlinux_x86.h"] {
            fs::write(at(name), "the types of another kernel\n".repeat(10_000)).unwrap();
        }
        // Links as in a volume of Kubernetes; and one that leads out.
        symlink("..data/linked.h", at("probe/linked.h")).unwrap();
        symlink("../outside.h", at("probe/way-out.h")).unwrap();
        let source = "// <unused.h>\n#include <lib/brackets.h>\n#include \"sizes.h\"\n#include \"vmlinux.h\"\n#include \"lib/vmlinux_x86.h\"\n#include \"lib/vmlinux.h\"\n#include \"linked.h\"\n\
            #include \"way-out.h\"\n#include \"../types/above.h\"\n#include \"../types/secret\"\n#include \"/etc/passwd\"\n#include \"missing.h\"\n#include \"lib\"\n";
        let files = beside(&at("probe/probe.bpf.c"), source).unwrap();
        let expected = [
            "common/shared.h",
            "lib/a.h",
            "lib/brackets.h",
            "lib/c.h",
            "lib/deep/b.h",
            "lib/vmlinux.h",
            "linked.h",
            "outside.h",
            "sizes.h",
            "types/above.h",
            "types/deep/below.h",
            "types/near.h",
        ];
        assert_eq!(files.keys().collect::<Vec<_>>(), expected);
        let [linked, shared] =
            ["linked.h", "common/shared.h"].map(|name| files[name].text.as_str());
        assert_eq!((linked, shared), ("int linked;", "int shared;"));
        fs::write(at("probe/lib/c.h"), b"\xff").unwrap();
        let (file, error) = beside(&at("probe/probe.bpf.c"), source).unwrap_err();
        let file = file.canonicalize().unwrap();
        assert!(
            file.ends_with("lib/c.h") && error.kind() == io::ErrorKind::InvalidData,
            "{error}"
        );
    }

    #[test]
    fn other_files_come_from_the_project() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for folder in ["probe", "include/linux", ".git"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (name, text) in [
            (
                "include/lines.h",
                "#include \"part.c\"\n#include <stdint.h>\n",
            ),
            ("include/part.c", "int part;"),
            ("include/stdint.h", "int other;"),
            ("include/linux/bpf.h", "int other;"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        let source = "#include <lines.h>\n#include <linux/bpf.h>\n#include \"missing.h\"\n";
        let files = beside(&at("probe/probe.bpf.c"), source).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["lines.h", "part.c"]);
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
