//! Findings, and the settings that a direction or a metric inherits from its probe.

use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::hook::Position;
use twinprobe_ebpf_common::metric::OnReplace;

use crate::validate::names;

/// The number of entries that a list or an object of a configuration may have. Usual lists have
/// some dozens at most, and each entry takes time wherever the configuration is read.
pub const ENTRIES_LIMIT: usize = 1024;
/// The number of mistakes that are reported.
const REPORTED: usize = 256;

/// The mistakes found so far, each at a field of the configuration.
#[derive(Default)]
pub struct Findings {
    reported: Vec<Finding>,
    /// The number of further mistakes without room in a report.
    more: usize,
}

impl Findings {
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.reported.len() < REPORTED {
            self.reported.push(Finding::config(field, message));
        } else {
            self.more += 1;
        }
    }

    /// Returns all mistakes as a refusal; an error if there are some.
    pub fn refuse(mut self) -> Result<(), Rejection> {
        if self.more > 0 {
            let message = format!(
                "{} more mistakes are not shown; correct these first",
                self.more
            );
            self.reported.push(Finding {
                field: None,
                ..Finding::config("", message)
            });
        }
        if self.reported.is_empty() {
            Ok(())
        } else {
            Err(self.reported.into())
        }
    }

    /// Tells whether a list or an object is short enough for its checks. A list or object with more
    /// entries is a mistake.
    pub fn fits(&mut self, field: &str, entries: usize) -> bool {
        if entries > ENTRIES_LIMIT {
            self.add(
                field,
                format!("{entries} entries are too many; the limit is {ENTRIES_LIMIT}"),
            );
        }
        entries <= ENTRIES_LIMIT
    }

    /// Returns the choice called `name`; `None` if the field is left out. An unknown name is a
    /// mistake, and also gives `None`. `what` is the message's word for the kind of choice.
    pub fn choose<T: Copy>(
        &mut self,
        field: &str,
        what: &str,
        name: Option<&str>,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let name = name?;
        let chosen = choices.iter().find(|(known, _)| *known == name);
        if chosen.is_none() {
            let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
            self.add(
                field,
                format!(
                    "unknown {what} {}; use one of {}",
                    names::quote(name),
                    known.join(", ")
                ),
            );
        }
        chosen.map(|(_, choice)| *choice)
    }

    pub fn priority(&mut self, field: &str, value: Option<i64>) -> Option<i16> {
        let value = value?;
        let priority = i16::try_from(value).ok();
        if priority.is_none() {
            let possible = "use -32768 to 32767; lower ones run first";
            self.add(field, format!("{value} is not a priority; {possible}"));
        }
        priority
    }

    pub fn position(&mut self, field: &str, name: Option<&str>) -> Option<Position> {
        self.choose(field, "position", name, &Position::NAMES)
    }

    pub fn on_replace(&mut self, field: &str, name: Option<&str>) -> Option<OnReplace> {
        self.choose(field, "way to replace", name, &OnReplace::NAMES)
    }
}

/// The values of fields that a direction or a metric leaves out.
pub struct Defaults {
    pub priority: i16,
    pub position: Position,
    pub on_replace: OnReplace,
}

impl Defaults {
    pub fn check(document: &ConfigDocument, findings: &mut Findings) -> Self {
        Self {
            priority: findings
                .priority("priority", document.priority)
                .unwrap_or_default(),
            position: findings
                .position("position", document.position.as_deref())
                .unwrap_or_default(),
            on_replace: findings
                .on_replace("on_replace", document.on_replace.as_deref())
                .unwrap_or_default(),
        }
    }
}
