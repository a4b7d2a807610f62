//! The contents of a directory of probe files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use twinprobe_cli::{ProbeFile, read_file};
use twinprobe_state_files::private;

/// The endings of the names of probe files. Other files are sources, or are ignored.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The configurations of a directory.
#[derive(Debug, Default, PartialEq)]
pub struct FolderContents {
    /// The probes of each file that could be read, by the file's name.
    pub files: BTreeMap<String, Vec<ProbeFile>>,
    /// The reason why a file is not used, by the file's name.
    pub broken: BTreeMap<String, String>,
}

/// Reads a directory, which other users must not be able to change. The probes of a file that has a
/// mistake are unknown; other files are used.
pub fn read(directory: &Path) -> io::Result<FolderContents> {
    private::trusted(directory)?;
    let mut contents = FolderContents::default();
    for (name, path) in paths(directory)? {
        match trusted(&path) {
            Ok(probes) => drop(contents.files.insert(name, probes)),
            Err(error) => drop(contents.broken.insert(name, format!("{error:#}"))),
        }
    }
    contents.refuse_common_names();
    Ok(contents)
}

/// Reads a file. Fails if other users can change the file, its sources, or the files that these
/// include.
fn trusted(path: &Path) -> Result<Vec<ProbeFile>, anyhow::Error> {
    private::trusted(path)?;
    let probes = read_file(path)?;
    for ProbeFile { sources, .. } in &probes {
        let sources = [&sources.ingress, &sources.egress].into_iter().flatten();
        for source in sources.flat_map(|source| source.beside.values().chain([source])) {
            source
                .file
                .as_ref()
                .map_or(Ok(()), |file| private::trusted(Path::new(file)))?;
        }
    }
    Ok(probes)
}

fn paths(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let ending = path
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        // Names that begin with a dot belong to editors and Kubernetes.
        if ENDINGS.contains(&ending) && !name.starts_with('.') && path.is_file() {
            paths.push((name.to_owned(), path));
        }
    }
    Ok(paths)
}

impl FolderContents {
    /// Removes the files that have a probe of the same name as another file: it is unknown which of
    /// them is meant.
    fn refuse_common_names(&mut self) {
        let mut files_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (file, probes) in &self.files {
            probes
                .iter()
                .for_each(|probe| files_of.entry(&probe.name).or_default().push(file));
        }
        let mut refused = BTreeMap::new();
        for (probe, files) in files_of.into_iter().filter(|(_, files)| files.len() > 1) {
            let reason = format!("probe {probe} is in several files: {}", files.join(", "));
            refused.extend(
                files
                    .into_iter()
                    .map(|file| (file.to_owned(), reason.clone())),
            );
        }
        self.files.retain(|file, _| !refused.contains_key(file));
        self.broken.extend(refused);
    }

    /// Tells whether a file contains this probe, or may contain it.
    pub fn may_have(&self, probe: &str) -> bool {
        !self.broken.is_empty() || self.files.values().flatten().any(|file| file.name == probe)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_file_is_read_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "a.yaml",
            "interface: lo\ningress: { source_file: a.bpf.c }\n",
        );
        write("a.bpf.c", "#include \"sizes.h\"\n");
        write("sizes.h", "the sizes");
        write("b.json", r#"{"interface": "lo""#);
        write(
            "c.yml",
            "probes:\n  one: { interface: lo }\n  two: { interface: lo }\n",
        );
        write(".d.yaml", "no configuration");
        write("notes.txt", "nor this");
        let contents = read(directory.path()).unwrap();
        let names = |file: &str| {
            contents.files[file]
                .iter()
                .map(|probe| &*probe.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (contents.files.len(), names("a.yaml"), names("c.yml")),
            (2, vec!["a"], vec!["one", "two"])
        );
        let ingress = contents.files["a.yaml"][0].config.ingress.as_ref().unwrap();
        assert_eq!(ingress.source.as_deref(), Some("#include \"sizes.h\"\n"));
        assert_eq!(ingress.files.as_ref().unwrap()["sizes.h"], "the sizes");
        assert_eq!(contents.broken.keys().collect::<Vec<_>>(), ["b.json"]);
        assert!(
            contents.broken["b.json"].contains("EOF"),
            "{:?}",
            contents.broken
        );
        assert!(
            contents.may_have("three"),
            "it may be the one of the broken file"
        );
    }

    #[test]
    fn a_probe_of_two_files_is_that_of_none() {
        let directory = tempfile::tempdir().unwrap();
        for (name, probe) in [("a.yaml", "x"), ("b.yaml", "x"), ("c.yaml", "y")] {
            fs::write(
                directory.path().join(name),
                format!("name: {probe}\ninterface: lo\n"),
            )
            .unwrap();
        }
        let contents = read(directory.path()).unwrap();
        assert_eq!(contents.files.keys().collect::<Vec<_>>(), ["c.yaml"]);
        assert_eq!(
            contents.broken["a.yaml"],
            "probe x is in several files: a.yaml, b.yaml"
        );
        assert_eq!(contents.broken.len(), 2);
    }

    /// A volume of Kubernetes: files are links into a directory that is exchanged as a whole.
    #[test]
    fn links_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("..2026")).unwrap();
        fs::write(directory.path().join("..2026/p.yaml"), "interface: lo\n").unwrap();
        symlink("..2026", directory.path().join("..data")).unwrap();
        symlink("..data/p.yaml", directory.path().join("p.yaml")).unwrap();
        let contents = read(directory.path()).unwrap();
        assert_eq!(contents.files.keys().collect::<Vec<_>>(), ["p.yaml"]);
        assert!(!contents.may_have("q") && contents.may_have("p"));
    }
}
