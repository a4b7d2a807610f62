//! The sources of a configuration as the user knows them: by the names of their files.

use std::borrow::Cow;

use twinprobe_client::ConfigDocument;
use twinprobe_ebpf_common::finding::Finding;

/// The sources of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub ingress: Option<Source>,
    pub egress: Option<Source>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as the user wrote it or would find it; `None` for a text inside the configuration.
    pub file: Option<String>,
    pub text: String,
}

impl Sources {
    /// The sources that stand in a configuration.
    pub fn inside(config: &ConfigDocument) -> Self {
        let [ingress, egress] = [&config.ingress, &config.egress].map(|direction| {
            let text = direction.as_ref()?.source.clone()?;
            Some(Source { file: None, text })
        });
        Self { ingress, egress }
    }

    /// Returns the source that a finding is about.
    pub fn of(&self, finding: &Finding) -> Option<&Source> {
        match finding.field.as_deref()? {
            "ingress.source" => self.ingress.as_ref(),
            "egress.source" => self.egress.as_ref(),
            _ => None,
        }
    }

    /// Returns the place of a finding as `FILE:LINE:COLUMN`, or by its field; `None` for a finding about no field.
    pub fn place(&self, finding: &Finding) -> Option<String> {
        let field = finding.field.as_deref()?;
        let file = self.of(finding).and_then(|source| source.file.as_deref());
        let mut place = Cow::from(file.unwrap_or(field)).into_owned();
        for number in [finding.line, finding.line.and(finding.column)].into_iter().flatten() {
            place.push_str(&format!(":{number}"));
        }
        Some(place)
    }
}
