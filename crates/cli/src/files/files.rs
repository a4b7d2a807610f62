//! The reading of probe files.

#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_path_to_error::Error as FieldError;
use twinprobe_api::{ConfigDocument, DirectionDocument};

use crate::files::beside::{IncludedFile, beside};
use crate::files::contents::{FileContents, NamedConfig};
use crate::files::object;
use crate::files::sources::{SourceFile, Sources};

/// The most bytes of a source and the files that it includes.
const MOST: usize = 1 << 20;

/// A configuration and the name of its probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFile {
    pub name: String,
    pub config: ConfigDocument,
    pub sources: Sources,
}

impl ProbeFile {
    pub fn new(name: String, config: ConfigDocument) -> Self {
        let sources = Sources::inside(&config);
        Self {
            name,
            config,
            sources,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeFileError {
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a configuration in JSON", path.display())]
    Json {
        path: PathBuf,
        source: FieldError<serde_json::Error>,
    },
    #[error("{} is not a configuration, neither in JSON nor in YAML", path.display())]
    Yaml {
        path: PathBuf,
        source: yaml_serde::Error,
    },
    #[error("{}: {problem}", path.display())]
    Content {
        path: PathBuf,
        problem: ContentError,
    },
    #[error("{}: could not read {direction}.source_file {}", path.display(), file.display())]
    SourceFile {
        path: PathBuf,
        direction: &'static str,
        file: PathBuf,
        source: io::Error,
    },
}

/// The mistakes of a file whose configurations can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("no configuration in it")]
    Empty,
    #[error("no file in it ends in .json, .yaml or .yml")]
    NoFiles,
    #[error("configuration {0} has no name; add the field `name`")]
    NoName(usize),
    #[error("there are two probes {0:?}")]
    Twice(String),
    #[error("{0}.source_file, {0}.source and {0}.object exclude each other; give one of them")]
    TwoSources(&'static str),
}

/// Reads the configurations of a file (`-`: standard input) and their sources.
pub fn read(path: &Path) -> Result<Vec<ProbeFile>, ProbeFileError> {
    read_with(path, [None, None])
}

/// Reads files as [`read`] does, and takes the sources of ingress and egress from `sources` where
/// these are given.
pub fn read_with(
    path: &Path,
    sources: [Option<&Path>; 2],
) -> Result<Vec<ProbeFile>, ProbeFileError> {
    let stdin = path.as_os_str() == "-";
    let text = if stdin {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let directory = if stdin { None } else { path.parent() }.unwrap_or(Path::new(""));
    let path = if stdin {
        Path::new("standard input")
    } else {
        path
    };
    let text = text.map_err(|source| ProbeFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let stem = if stdin {
        None
    } else {
        path.file_stem().and_then(|stem| stem.to_str())
    };
    let probes = named(parse(path, &text)?, stem);
    let mut probes = probes.map_err(|problem| ProbeFileError::Content {
        path: path.to_owned(),
        problem,
    })?;
    for probe in &mut probes {
        let [ingress, egress] = sources;
        let (config, known) = (&mut probe.config, &mut probe.sources);
        let directions = [
            (&mut config.ingress, &mut known.ingress, ingress),
            (&mut config.egress, &mut known.egress, egress),
        ];
        for (direction, known, source) in directions {
            if let Some(source) = source {
                let direction = direction.get_or_insert_default();
                (direction.object, direction.source_file) = (None, None);
                let unread = |(path, source)| ProbeFileError::Read { path, source };
                *known = Some(take_source(source, direction).map_err(unread)?);
            }
        }
        inline_sources(path, directory, probe)?;
    }
    Ok(probes)
}

/// Reads the configurations of files, and of all files of directories whose names end in .json,
/// .yaml or .yml.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<ProbeFile>, ProbeFileError> {
    let mut probes: Vec<ProbeFile> = Vec::new();
    for path in paths {
        for file in in_directory(path)? {
            for probe in read(&file)? {
                if probes.iter().any(|other| other.name == probe.name) {
                    return Err(ProbeFileError::Content {
                        path: file,
                        problem: ContentError::Twice(probe.name),
                    });
                }
                probes.push(probe);
            }
        }
    }
    Ok(probes)
}

/// Returns the probe files of a directory, sorted, or the path itself if it is not a directory.
fn in_directory(path: &Path) -> Result<Vec<PathBuf>, ProbeFileError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| ProbeFileError::Read {
        path: path.to_owned(),
        source,
    };
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let entries = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let mut files = entries.collect::<Result<Vec<_>, _>>()?;
    let is_probe_file = |file: &PathBuf| {
        let ending = file.extension().and_then(|ending| ending.to_str());
        file.is_file() && ending.is_some_and(|ending| matches!(ending, "json" | "yaml" | "yml"))
    };
    files.retain(is_probe_file);
    files.sort();
    if files.is_empty() {
        return Err(ProbeFileError::Content {
            path: path.to_owned(),
            problem: ContentError::NoFiles,
        });
    }
    Ok(files)
}

fn parse(path: &Path, text: &str) -> Result<Vec<NamedConfig>, ProbeFileError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut json);
    // Text after the first value is a mistake of the whole file.
    let whole = |error| FieldError::new(serde_path_to_error::Track::new().path(), error);
    let json = match read
        .and_then(|contents: FileContents| json.end().map(|()| contents).map_err(whole))
    {
        Ok(contents) => return Ok(contents.0),
        Err(error) => error,
    };
    // The YAML parser accepts almost everything: for text that was meant as JSON, the JSON parser's
    // message is the useful one.
    let is_json = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    let mut probes = Vec::new();
    for document in yaml_serde::Deserializer::from_str(text) {
        match FileContents::deserialize(document) {
            Ok(FileContents(found)) if !is_json => probes.extend(found),
            Err(source) if !is_json && !looks_like_json => {
                return Err(ProbeFileError::Yaml {
                    path: path.to_owned(),
                    source,
                });
            }
            _ => {
                return Err(ProbeFileError::Json {
                    path: path.to_owned(),
                    source: json,
                });
            }
        }
    }
    Ok(probes)
}

/// Returns each configuration with its name: the key, the field `name`, or `stem` if there is only
/// one configuration.
fn named(found: Vec<NamedConfig>, stem: Option<&str>) -> Result<Vec<ProbeFile>, ContentError> {
    let stem = stem.filter(|_| found.len() == 1);
    let mut seen = BTreeSet::new();
    let mut probes = Vec::with_capacity(found.len());
    for (i, (key, config)) in found.into_iter().enumerate() {
        let name = key
            .or_else(|| config.name.clone())
            .or_else(|| stem.map(str::to_owned));
        let name = name.ok_or(ContentError::NoName(i + 1))?;
        if !seen.insert(name.clone()) {
            return Err(ContentError::Twice(name));
        }
        probes.push(ProbeFile::new(name, config));
    }
    if probes.is_empty() {
        Err(ContentError::Empty)
    } else {
        Ok(probes)
    }
}

/// Replaces `source_file` by the content of the file, as `source`: the daemon reads no files.
pub fn inline_sources(
    path: &Path,
    directory: &Path,
    probe: &mut ProbeFile,
) -> Result<(), ProbeFileError> {
    let ProbeFile {
        config, sources, ..
    } = probe;
    let directions = [
        ("ingress", &mut config.ingress, &mut sources.ingress),
        ("egress", &mut config.egress, &mut sources.egress),
    ];
    for (name, direction, known) in directions {
        let Some(direction) = direction else { continue };
        let Some(file) = direction.source_file.take() else {
            continue;
        };
        if direction.source.is_some() || direction.object.is_some() {
            let problem = ContentError::TwoSources(name);
            return Err(ProbeFileError::Content {
                path: path.to_owned(),
                problem,
            });
        }
        let source = take_source(&directory.join(file), direction);
        let path = path.to_owned();
        let source = source.map_err(|(file, source)| ProbeFileError::SourceFile {
            path,
            direction: name,
            file,
            source,
        })?;
        *known = Some(source);
    }
    Ok(())
}

/// Reads a source and the files beside it that it includes, or an object; files within the
/// configuration stay as they are.
fn take_source(
    file: &Path,
    direction: &mut DirectionDocument,
) -> Result<SourceFile, (PathBuf, io::Error)> {
    let unread = |error: io::Error| (file.to_owned(), error);
    let bytes = std::fs::read(file).map_err(unread)?;
    if bytes.starts_with(object::ELF) {
        (direction.source, direction.object) = (None, Some(STANDARD.encode(object::slim(bytes))));
        return Ok(SourceFile::new(file, String::new()));
    }
    let text = io::read_to_string(&bytes[..]).map_err(unread)?;
    let included = beside(file, &text)?;
    expect_room(&text, &included)?;
    let inside = direction.files.take().unwrap_or_default();
    let mut source = SourceFile::new(file, text.clone());
    source.beside = SourceFile::inside(String::new(), Some(&inside)).beside;
    let mut files = inside;
    for (name, IncludedFile { path, text }) in included {
        if let Entry::Vacant(place) = files.entry(name.clone()) {
            source
                .beside
                .insert(name, SourceFile::new(&path, text.clone()));
            place.insert(text);
        }
    }
    direction.source = Some(text);
    direction.files = (!files.is_empty()).then_some(files);
    Ok(source)
}

/// Fails for the largest file if a source and the files beside it have too many bytes for the
/// daemon.
fn expect_room(
    text: &str,
    files: &BTreeMap<String, IncludedFile>,
) -> Result<(), (PathBuf, io::Error)> {
    let all = files
        .values()
        .map(|file| file.text.len())
        .fold(text.len(), usize::saturating_add);
    let largest = files
        .iter()
        .max_by_key(|(_, file)| file.text.len())
        .filter(|_| all > MOST);
    let Some((name, largest)) = largest else {
        return Ok(());
    };
    let message = format!(
        "it has {} of {all} bytes, and a source with the files that it includes may have {MOST}; a file with the types of the kernel \
         needs the name vmlinux.h, then the daemon makes it",
        largest.text.len()
    );
    Err((
        PathBuf::from(name),
        io::Error::new(io::ErrorKind::FileTooLarge, message),
    ))
}
