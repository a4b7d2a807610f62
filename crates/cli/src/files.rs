//! Probe files: JSON or YAML with one configuration or many.

mod contents;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_path_to_error::Error as FieldError;
use twinprobe_client::ConfigDocument;

use crate::files::contents::{Contents, Written};

/// A configuration and the name of its probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFile {
    pub name: String,
    pub config: ConfigDocument,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no configuration in JSON", path.display())]
    Json { path: PathBuf, source: FieldError<serde_json::Error> },
    #[error("{} is no configuration, neither in JSON nor in YAML", path.display())]
    Yaml { path: PathBuf, source: yaml_serde::Error },
    #[error("{}: {problem}", path.display())]
    Content { path: PathBuf, problem: ContentError },
    #[error("{}: could not read {direction}.source_file {}", path.display(), file.display())]
    SourceFile { path: PathBuf, direction: &'static str, file: PathBuf, source: io::Error },
}

/// The mistakes of a file whose configurations can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("no configuration in it")]
    Empty,
    #[error("configuration {0} has no name; add the field `name`")]
    NoName(usize),
    #[error("there are two probes {0:?}")]
    Twice(String),
    #[error("{0}.source_file, {0}.source and {0}.object exclude each other; give one of them")]
    TwoSources(&'static str),
}

/// Reads the configurations of a file (`-`: standard input) and the sources that they refer to.
pub fn read(path: &Path) -> Result<Vec<ProbeFile>, FileError> {
    read_with(path, [None, None])
}

/// Does the same as [`read`], and takes the sources of ingress and egress from `sources` where these are given.
pub fn read_with(path: &Path, sources: [Option<&Path>; 2]) -> Result<Vec<ProbeFile>, FileError> {
    let stdin = path.as_os_str() == "-";
    let text = if stdin { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    let directory = if stdin { None } else { path.parent() }.unwrap_or(Path::new(""));
    let path = if stdin { Path::new("standard input") } else { path };
    let text = text.map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let stem = if stdin { None } else { path.file_stem().and_then(|stem| stem.to_str()) };
    let probes = named(parse(path, &text)?, stem);
    let mut probes = probes.map_err(|problem| FileError::Content { path: path.to_owned(), problem })?;
    for probe in &mut probes {
        let [ingress, egress] = sources;
        for (direction, source) in [(&mut probe.config.ingress, ingress), (&mut probe.config.egress, egress)]
        {
            if let Some(source) = source {
                let direction = direction.get_or_insert_default();
                (direction.source, direction.object) = (None, None);
                let source = std::path::absolute(source).unwrap_or_else(|_| source.to_owned());
                direction.source_file = Some(source.to_string_lossy().into_owned());
            }
        }
        inline_sources(path, directory, &mut probe.config)?;
    }
    Ok(probes)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Written>, FileError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut json);
    // Text after the first value is a mistake of the whole file.
    let whole = |error| FieldError::new(serde_path_to_error::Track::new().path(), error);
    let json = match read.and_then(|contents: Contents| json.end().map(|()| contents).map_err(whole)) {
        Ok(contents) => return Ok(contents.0),
        Err(error) => error,
    };
    // The YAML parser accepts almost everything: for text that was meant as JSON, the JSON parser's message is the
    // useful one.
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    let mut probes = Vec::new();
    for document in yaml_serde::Deserializer::from_str(text) {
        match Contents::deserialize(document) {
            Ok(Contents(found)) if !is_json => probes.extend(found),
            Err(source) if !is_json && !looks_like_json => {
                return Err(FileError::Yaml { path: path.to_owned(), source });
            }
            _ => return Err(FileError::Json { path: path.to_owned(), source: json }),
        }
    }
    Ok(probes)
}

/// Returns each configuration with its name: the key, the field `name`, or `stem` if there is only one configuration.
fn named(found: Vec<Written>, stem: Option<&str>) -> Result<Vec<ProbeFile>, ContentError> {
    let stem = stem.filter(|_| found.len() == 1);
    let mut seen = BTreeSet::new();
    let mut probes = Vec::with_capacity(found.len());
    for (i, (key, config)) in found.into_iter().enumerate() {
        let name = key.or_else(|| config.name.clone()).or_else(|| stem.map(str::to_owned));
        let name = name.ok_or(ContentError::NoName(i + 1))?;
        if !seen.insert(name.clone()) {
            return Err(ContentError::Twice(name));
        }
        probes.push(ProbeFile { name, config });
    }
    if probes.is_empty() { Err(ContentError::Empty) } else { Ok(probes) }
}

/// Replaces `source_file` by the content of the file, as `source`: the daemon reads no files.
fn inline_sources(path: &Path, directory: &Path, config: &mut ConfigDocument) -> Result<(), FileError> {
    for (name, direction) in [("ingress", &mut config.ingress), ("egress", &mut config.egress)] {
        let Some(direction) = direction else { continue };
        let Some(file) = direction.source_file.take() else { continue };
        if direction.source.is_some() || direction.object.is_some() {
            let problem = ContentError::TwoSources(name);
            return Err(FileError::Content { path: path.to_owned(), problem });
        }
        let file = directory.join(file);
        direction.source = Some(std::fs::read_to_string(&file).map_err(|source| FileError::SourceFile {
            path: path.to_owned(),
            direction: name,
            file,
            source,
        })?);
    }
    Ok(())
}
