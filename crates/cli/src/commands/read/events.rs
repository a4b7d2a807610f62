//! `twinprobe events`.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::print::{self, PipeState};
use crate::output::view::yaml;

#[derive(Debug, Args)]
pub struct Events {
    /// The probe
    name: String,
    /// Show only the events of this metric
    #[arg(short, long)]
    metric: Option<String>,
    /// Form of the output: an event on each line, or a YAML document for each
    #[arg(short, long, value_enum, default_value_t = EventForm::Json)]
    output: EventForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EventForm {
    Json,
    Yaml,
}

impl Events {
    /// Prints events until the probe is deleted or replaced, or the daemon stops.
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let mut events = session
            .fleet
            .one()?
            .events(&self.name, self.metric.as_deref())
            .await?;
        let mut rest = Vec::new();
        while let Some(lines) = events.next().await? {
            let state = match self.output {
                EventForm::Json => print::write_part(&[&lines])?,
                EventForm::Yaml => {
                    rest.extend_from_slice(&lines);
                    documents(&mut rest)?
                }
            };
            if state == PipeState::Gone {
                break;
            }
        }
        Ok(())
    }
}

/// Prints each whole line of `lines` as a document, and leaves the rest.
fn documents(lines: &mut Vec<u8>) -> Result<PipeState, CommandError> {
    while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = lines.drain(..=end).collect();
        let Ok(event) = serde_json::from_slice::<Value>(&line) else {
            continue;
        };
        if print::write(format!("---\n{}", yaml(&event)).as_bytes())? == PipeState::Gone {
            return Ok(PipeState::Gone);
        }
    }
    Ok(PipeState::Present)
}
