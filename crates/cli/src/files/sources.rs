//! The sources of a configuration by the names that the user knows: the names of their files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::finding::Finding;

/// The sources of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub ingress: Option<SourceFile>,
    pub egress: Option<SourceFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The path of the file in the user's words; `None` for a text inside the configuration.
    pub file: Option<String>,
    pub text: String,
    /// The included files, by their paths below its folder.
    pub beside: BTreeMap<String, SourceFile>,
}

impl SourceFile {
    /// A source in a configuration, with the texts of the files that it includes.
    pub fn inside(text: String, files: Option<&BTreeMap<String, String>>) -> Self {
        let of_one =
            |(name, text): (&String, &String)| (name.clone(), Self::inside(text.clone(), None));
        Self {
            file: None,
            text,
            beside: files.into_iter().flatten().map(of_one).collect(),
        }
    }

    /// A source in a file.
    pub fn new(file: &Path, text: String) -> Self {
        Self {
            file: Some(file.display().to_string()),
            text,
            beside: BTreeMap::new(),
        }
    }
}

impl Sources {
    /// The sources inside a configuration.
    pub fn inside(config: &ConfigDocument) -> Self {
        let [ingress, egress] = [&config.ingress, &config.egress].map(|direction| {
            let direction = direction.as_ref()?;
            Some(SourceFile::inside(
                direction.source.clone()?,
                direction.files.as_ref(),
            ))
        });
        Self { ingress, egress }
    }

    /// Returns the source that a finding is about.
    pub fn of(&self, finding: &Finding) -> Option<&SourceFile> {
        let (direction, field) = finding.field.as_deref()?.split_once('.')?;
        let source = match direction {
            "ingress" => self.ingress.as_ref()?,
            "egress" => self.egress.as_ref()?,
            _ => return None,
        };
        match field.split_once('.') {
            None => (field == "source").then_some(source),
            Some(("files", name)) => source.beside.get(name),
            Some(_) => None,
        }
    }

    /// Returns the place of a finding as `FILE:LINE:COLUMN`, or by its field; `None` without a
    /// field.
    pub fn place(&self, finding: &Finding) -> Option<String> {
        let field = finding.field.as_deref()?;
        let file = self.of(finding).and_then(|source| source.file.as_deref());
        let mut place = Cow::from(file.unwrap_or(field)).into_owned();
        for number in [finding.line, finding.line.and(finding.column)]
            .into_iter()
            .flatten()
        {
            place.push_str(&format!(":{number}"));
        }
        Some(place)
    }
}
