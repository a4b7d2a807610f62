//! Messages on stderr.

use twinprobe_api::Problem;
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::{Finding, SOURCE_NAME, with_causes};

use crate::error::CommandError;
use crate::files::sources::Sources;
use crate::output::print;
use crate::output::screen::Screen;
use crate::report::diagnostic::{Severity, diagnostic};
use crate::report::words::on_command_line;

/// The writer of messages.
#[derive(Clone, Copy, Debug)]
pub struct Reporter {
    pub screen: Screen,
    /// True to show the whole output of the compiler or of the verifier.
    pub verbose: bool,
}

impl Reporter {
    pub fn new(verbose: bool) -> Self {
        Self {
            screen: Screen::stderr(),
            verbose,
        }
    }

    /// Prints the daemon's warnings about a configuration that it accepted.
    pub fn warnings(&self, warnings: &[Finding], sources: &Sources) {
        for warning in warnings {
            print::complain(&diagnostic(
                warning,
                Severity::Warning,
                sources,
                self.screen,
            ));
        }
    }

    /// Returns the text of an error with its causes.
    pub fn error(&self, error: &CommandError) -> String {
        match error {
            CommandError::Probe {
                error: ClientError::Refused(problem),
                sources,
            } => self.problem(problem, sources),
            CommandError::Client(ClientError::Refused(problem)) => {
                self.problem(problem, &Sources::default())
            }
            CommandError::Rejected { rejection, sources } => {
                let finding = |finding| diagnostic(finding, Severity::Error, sources, self.screen);
                rejection
                    .findings
                    .iter()
                    .map(finding)
                    .collect::<Vec<_>>()
                    .join("\n")
            }
            CommandError::Probe { error, .. } => with_causes(error),
            error => with_causes(error),
        }
    }

    /// Returns the text of a refusal.
    pub fn problem(&self, problem: &Problem, sources: &Sources) -> String {
        let mut text = problem.title.clone();
        // A finding shows its own details, with their place.
        let is_repeated = problem
            .errors
            .iter()
            .any(|finding| finding.message == problem.detail);
        if !problem.detail.is_empty() && problem.detail != problem.title && !is_repeated {
            text.push_str(&format!(": {}", on_command_line(&problem.detail)));
        }
        for finding in &problem.errors {
            text.push_str(&format!(
                "\n{}",
                diagnostic(finding, Severity::Error, sources, self.screen)
            ));
        }
        let Some(log) = problem
            .log
            .as_deref()
            .map(str::trim_end)
            .filter(|log| !log.is_empty())
        else {
            return text;
        };
        if self.verbose {
            let file = problem
                .errors
                .iter()
                .find_map(|finding| sources.of(finding)?.file.as_deref());
            let log = file.map_or_else(|| log.to_owned(), |file| log.replace(SOURCE_NAME, file));
            text.push_str(&format!("\n\n{log}"));
        } else {
            text.push_str(&format!(
                "\nthe whole log has {} lines: --verbose shows it",
                log.lines().count()
            ));
        }
        text
    }
}
