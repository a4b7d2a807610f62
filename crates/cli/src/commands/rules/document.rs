//! The reading of a rule from a file. Mistakes are shown with their places.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use twinprobe_api::{ParseError, RuleDocument, parse_any_yaml, place_of};
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::commands::deploy::adjust::{pair, set};
use crate::error::CommandError;
use twinprobe_library::{LibraryRule, library_rule};

/// The rule that a command is about.
#[derive(Debug, Args)]
pub struct RuleChoice {
    /// Rule in YAML or JSON; - reads standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "library")]
    file: Option<PathBuf>,
    /// Take this rule of the library; `twinprobe rules library` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    library: Option<String>,
    /// Give a field of the rule a value, as `for=3` or `do.0.apply.expires=1h`. Repeatable
    #[arg(long, value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

impl RuleChoice {
    /// The name of the rule in the library, if it is from there.
    pub fn library(&self) -> Option<&str> {
        self.library.as_deref()
    }

    /// Returns the rule with the values that the command line gives.
    pub fn read(&self) -> Result<RuleFile, CommandError> {
        let mut file = match (&self.file, &self.library) {
            (_, Some(name)) => {
                let LibraryRule {
                    rule: document,
                    text,
                    ..
                } = library_rule(name)?;
                RuleFile {
                    path: format!("{name} of the library").into(),
                    text: text.to_owned(),
                    document,
                }
            }
            (file, None) => RuleFile::read(file.as_deref().unwrap_or(Path::new("-")))?,
        };
        for (field, value) in &self.set {
            file.document = set(&file.document, field, value)?;
        }
        Ok(file)
    }
}

/// A rule in a file.
pub struct RuleFile {
    path: PathBuf,
    text: String,
    pub document: RuleDocument,
}

impl RuleFile {
    /// Reads a rule in YAML or JSON; `-` is the standard input.
    fn read(path: &Path) -> Result<Self, CommandError> {
        let mut text = String::new();
        let read = if path == Path::new("-") {
            io::stdin().read_to_string(&mut text).map(drop)
        } else {
            fs::read_to_string(path).map(|content| text = content)
        };
        read.map_err(|source| CommandError::Read {
            path: path.to_owned(),
            source,
        })?;
        match parse_any_yaml(text.as_bytes()) {
            Ok(document) => Ok(Self {
                path: path.to_owned(),
                text,
                document,
            }),
            Err(ParseError::Invalid(rejection)) => Err(refused(path, &text, &rejection)),
            Err(ParseError::Malformed {
                message,
                line,
                column,
            }) => {
                let problem = format!("line {line}, column {column}: {message}");
                Err(CommandError::Rule {
                    path: path.to_owned(),
                    problem,
                })
            }
        }
    }

    /// Returns the error for a rule that is refused.
    pub fn refused(&self, rejection: &Rejection) -> CommandError {
        refused(&self.path, &self.text, rejection)
    }

    /// Returns the error of a request with the rule. The daemon names fields, the file has their
    /// lines.
    pub fn failed(&self, error: ClientError) -> CommandError {
        match error {
            ClientError::Refused(problem) if !problem.errors.is_empty() => {
                self.refused(&Rejection {
                    findings: problem.errors,
                    log: None,
                })
            }
            error => error.into(),
        }
    }
}

fn refused(path: &Path, text: &str, rejection: &Rejection) -> CommandError {
    let lines: Vec<_> = rejection
        .findings
        .iter()
        .map(|finding| line(text, finding))
        .collect();
    CommandError::Rule {
        path: path.to_owned(),
        problem: lines.join("\n  "),
    }
}

/// Formats a mistake with the line of its field in the file and, for an expression, the place in
/// the expression.
fn line(text: &str, finding: &Finding) -> String {
    let field = finding.field.as_deref().unwrap_or_default();
    let at = place_of(text, field)
        .map(|(line, _)| format!("line {line}: "))
        .unwrap_or_default();
    let inside = match (finding.line, finding.column) {
        (Some(1), Some(column)) => format!(", column {column} of the expression"),
        (Some(line), Some(column)) => format!(", line {line}, column {column} of the expression"),
        _ => String::new(),
    };
    let name = if field.is_empty() {
        String::new()
    } else {
        format!("{field}{inside}: ")
    };
    format!("{at}{name}{}", finding.message)
}
