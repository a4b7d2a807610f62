//! Probe files: JSON or YAML with one configuration or many.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::strict::Strict;

/// A configuration and the name it is to have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProbeFile {
    pub name: String,
    pub config: Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no JSON", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{} is neither JSON nor YAML", path.display())]
    Yaml { path: PathBuf, source: serde_norway::Error },
    #[error("{}: {problem}", path.display())]
    Content { path: PathBuf, problem: ContentError },
    #[error("{}: could not read {field} {}", path.display(), file.display())]
    SourceFile { path: PathBuf, field: String, file: PathBuf, source: io::Error },
}

/// What is wrong with a file that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("no configuration in it")]
    Empty,
    #[error("configuration {0} is no object")]
    NotAnObject(usize),
    #[error("`probes` must be an object from name to configuration, with no field beside it")]
    Probes,
    #[error("configuration {0} has no name; add the field `name`")]
    NoName(usize),
    #[error("`name` must be a string")]
    NameType,
    #[error("there are two probes {0:?}")]
    Twice(String),
    #[error("{0}.source and {0}.source_file exclude each other; give one of them")]
    TwoSources(&'static str),
    #[error("{0}.source_file must be a string")]
    SourceFileType(&'static str),
}

/// Reads a file (`-`: stdin) and the sources it refers to.
pub(super) fn read(path: &Path) -> Result<Vec<ProbeFile>, FileError> {
    let stdin = path.as_os_str() == "-";
    let text = if stdin {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let directory = if stdin { None } else { path.parent() }.unwrap_or(Path::new(""));
    let path = if stdin { Path::new("standard input") } else { path };
    let text = text.map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let stem = if stdin { None } else { path.file_stem().and_then(|stem| stem.to_str()) };
    let mut probes = parse(path, &text, stem)?;
    for probe in &mut probes {
        inline_sources(path, directory, &mut probe.config)?;
    }
    Ok(probes)
}

fn parse(path: &Path, text: &str, stem: Option<&str>) -> Result<Vec<ProbeFile>, FileError> {
    named(documents(path, text)?, stem)
        .map_err(|problem| FileError::Content { path: path.to_owned(), problem })
}

fn documents(path: &Path, text: &str) -> Result<Vec<Value>, FileError> {
    let json = match serde_json::from_str(text) {
        Ok(Strict(value)) => return Ok(vec![value]),
        Err(error) => error,
    };
    // YAML takes almost everything; of what was meant as JSON, JSON's own message is the useful one.
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if is_json || json.is_data() {
        return Err(FileError::Json { path: path.to_owned(), source: json });
    }
    let documents: Result<Vec<Value>, _> = serde_norway::Deserializer::from_str(text)
        .map(|document| Strict::deserialize(document).map(|strict| strict.0))
        .collect();
    let mut documents = documents.map_err(|source| {
        let path = path.to_owned();
        if text.trim_start().starts_with(['{', '[']) {
            FileError::Json { path, source: json }
        } else {
            FileError::Yaml { path, source }
        }
    })?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// The configurations in `documents`: each one itself, a list of them, or `probes: {NAME: ...}`.
fn named(documents: Vec<Value>, stem: Option<&str>) -> Result<Vec<ProbeFile>, ContentError> {
    let mut found: Vec<(Option<String>, Value)> = Vec::new();
    for document in documents {
        match document {
            Value::Array(list) => found.extend(list.into_iter().map(|config| (None, config))),
            Value::Object(mut object) if object.contains_key("probes") => {
                let (Some(Value::Object(probes)), true) = (object.remove("probes"), object.is_empty()) else {
                    return Err(ContentError::Probes);
                };
                found.extend(probes.into_iter().map(|(name, config)| (Some(name), config)));
            }
            other => found.push((None, other)),
        }
    }
    let stem = stem.filter(|_| found.len() == 1);
    let mut seen = BTreeSet::new();
    let mut probes = Vec::with_capacity(found.len());
    for (i, (key, config)) in found.into_iter().enumerate() {
        let Value::Object(config) = config else { return Err(ContentError::NotAnObject(i + 1)) };
        let name = match (key, config.get("name")) {
            (Some(key), _) => key,
            (None, Some(Value::String(name))) => name.clone(),
            (None, Some(_)) => return Err(ContentError::NameType),
            (None, None) => stem.ok_or(ContentError::NoName(i + 1))?.to_owned(),
        };
        if !seen.insert(name.clone()) {
            return Err(ContentError::Twice(name));
        }
        probes.push(ProbeFile { name, config });
    }
    if probes.is_empty() { Err(ContentError::Empty) } else { Ok(probes) }
}

/// Puts the file that `source_file` names in its place as `source`: the daemon is sent everything.
fn inline_sources(path: &Path, directory: &Path, config: &mut Map<String, Value>) -> Result<(), FileError> {
    let content = |problem| FileError::Content { path: path.to_owned(), problem };
    for direction in ["ingress", "egress"] {
        let Some(Value::Object(object)) = config.get_mut(direction) else { continue };
        let Some(file) = object.remove("source_file") else { continue };
        let Value::String(file) = file else { return Err(content(ContentError::SourceFileType(direction))) };
        if object.contains_key("source") {
            return Err(content(ContentError::TwoSources(direction)));
        }
        let file = directory.join(file);
        let source = std::fs::read_to_string(&file).map_err(|source| FileError::SourceFile {
            path: path.to_owned(),
            field: format!("{direction}.source_file"),
            file,
            source,
        })?;
        object.insert("source".to_owned(), source.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
