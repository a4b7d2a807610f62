//! `twinprobe propose`: a configuration for a program that exists.

mod map;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use twinprobe_api::{ConfigDocument, ValidationReport};
use twinprobe_client::{Client, ClientError};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::Finding;

use crate::commands::trial::propose::map::{MapPart, ProposedMap, metric_name};
use crate::commands::trial::propose::names::{is_identifier, name, quoted, symbol};
use crate::error::CommandError;
use crate::files::files::{self, ProbeFile};
use crate::fleet::session::Session;
use crate::output::print;

/// The word in sections and types of programs for XDP.
const XDP: &[u8] = b"xdp";
/// The words of refusals of programs that are for another hook.
const ELSEWHERE: [&str; 3] = [
    "runs other programs",
    "belong to other hooks",
    "which the hook ",
];

#[derive(Debug, Args)]
pub struct Propose {
    /// The program: eBPF C, or an object that a compiler or loader generator has made
    #[arg(value_name = "PROGRAM")]
    program: PathBuf,
    /// Interface of the probe
    #[arg(long, value_name = "IFACE")]
    interface: String,
    /// Run the program at this hook only, xdp or tc
    #[arg(long, value_name = "HOOK", value_parser = ["xdp", "tc"])]
    hook: Option<String>,
    /// The function that sees the packets, if the program has several
    #[arg(long, value_name = "FUNCTION")]
    entry: Option<String>,
}

/// A hook that was tried for a program.
struct TriedHook {
    direction: Direction,
    hook: &'static str,
    result: Result<ValidationReport, CommandError>,
}

/// A direction of the proposal.
struct ProposedDirection {
    direction: Direction,
    hook: &'static str,
    maps: Vec<ProposedMap>,
}

impl Propose {
    /// Prints a configuration that the daemon has found valid.
    pub async fn run(&self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        let mut directions = self.directions(client).await?;
        let text = loop {
            let text = self.text(&directions);
            let probe = self.read(&text)?;
            match validate(client, &probe).await {
                Ok(_) => break text,
                // A metric that is refused is left out, and the others are tried again.
                Err(CommandError::Probe {
                    error: ClientError::Refused(problem),
                    ..
                }) if leave_out(&mut directions, &problem.errors) => {}
                Err(error) => return Err(error),
            }
        };
        print::print(text)?;
        Ok(())
    }

    /// Finds the hooks that the program runs at.
    async fn directions(&self, client: &Client) -> Result<Vec<ProposedDirection>, CommandError> {
        let hooks = [
            (Direction::Ingress, "xdp"),
            (Direction::Ingress, "tc"),
            (Direction::Egress, "tc"),
        ];
        let hooks = hooks
            .into_iter()
            .filter(|(_, hook)| self.hook.as_deref().is_none_or(|only| only == *hook));
        let mut tried = Vec::new();
        for (direction, hook) in hooks {
            let text = self.text(&[ProposedDirection {
                direction,
                hook,
                maps: Vec::new(),
            }]);
            let result = match validate(client, &self.read(&text)?).await {
                Err(error) if !is_refusal(&error) => return Err(error),
                result => result,
            };
            tried.push(TriedHook {
                direction,
                hook,
                result,
            });
        }
        chosen(tried, self.is_for_tc())
    }

    /// Tells whether no section and no type of the program is for XDP.
    fn is_for_tc(&self) -> bool {
        let bytes = std::fs::read(&self.program).unwrap_or_default();
        !bytes.windows(XDP.len()).any(|part| part == XDP)
    }

    /// Returns the proposal in YAML.
    fn text(&self, directions: &[ProposedDirection]) -> String {
        let program = self.program.display().to_string();
        let name = name(&self.program);
        let mut text = format!("name: {name}\ninterface: {}\n", quoted(&self.interface));
        let filled: BTreeMap<&str, &str> = directions
            .iter()
            .flat_map(|direction| &direction.maps)
            .filter(|map| map.part == MapPart::Filled)
            .map(|map| (map.map.as_str(), map.kind.as_str()))
            .collect();
        if !filled.is_empty() {
            text.push_str("# The program only looks up entries of these maps. Give them here, or by `twinprobe entries`:\n");
            text.push_str("# - { key: KEY, value: VALUE }\nfill:\n");
            for (map, kind) in filled {
                let _ = writeln!(text, "  {map}: []  # {kind}");
            }
        }
        for ProposedDirection {
            direction,
            hook,
            maps,
        } in directions
        {
            let _ = write!(
                text,
                "{direction}:\n  hook: {hook}\n  source_file: {}\n",
                quoted(&program)
            );
            if let Some(entry) = &self.entry {
                let _ = writeln!(text, "  entry: {}", quoted(entry));
            }
            if maps.iter().any(ProposedMap::is_metric) {
                text.push_str("  metrics:\n");
            }
            for map in maps {
                map.write(&mut text, &name, &metric_name(map, maps));
            }
        }
        text
    }

    /// Reads the proposal as `apply` does from a file in the present directory.
    fn read(&self, text: &str) -> Result<ProbeFile, CommandError> {
        let config: ConfigDocument =
            yaml_serde::from_str(text).map_err(|error| CommandError::Read {
                path: self.program.clone(),
                source: io::Error::other(error),
            })?;
        let mut probe = ProbeFile::new(config.name.clone().unwrap_or_default(), config);
        files::inline_sources(&self.program, Path::new(""), &mut probe)?;
        Ok(probe)
    }
}

/// Chooses among the hooks that were tried. Egress is part of the proposal if the program has a
/// function of its own for it.
fn chosen(tried: Vec<TriedHook>, is_for_tc: bool) -> Result<Vec<ProposedDirection>, CommandError> {
    let entry = |of: &TriedHook| {
        let report = of.result.as_ref().ok()?;
        report
            .programs
            .get(&of.direction)
            .map(|program| program.entry.clone())
    };
    let at = |direction, hook| {
        tried
            .iter()
            .find(|of| (of.direction, of.hook) == (direction, hook))
    };
    let ingress_tc = at(Direction::Ingress, "tc").and_then(entry);
    let ingress = tried
        .iter()
        .find(|of| of.direction == Direction::Ingress && of.result.is_ok());
    let egress = at(Direction::Egress, "tc");
    let egress = egress.filter(|of| entry(of).is_some_and(|egress| Some(egress) != ingress_tc));
    let chosen: Vec<ProposedDirection> = ingress
        .into_iter()
        .chain(egress)
        .filter_map(TriedHook::proposal)
        .collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let hook = if is_for_tc { "tc" } else { "xdp" };
    let meant = tried
        .into_iter()
        .rev()
        .max_by_key(|of| (!of.is_elsewhere(), of.hook == hook));
    Err(meant
        .and_then(|of| of.result.err())
        .unwrap_or(CommandError::NoChoice))
}

impl TriedHook {
    /// Tells whether the refusal says that the program is for another hook.
    fn is_elsewhere(&self) -> bool {
        match &self.result {
            Err(CommandError::Probe {
                error: ClientError::Refused(problem),
                ..
            }) => {
                let says = |message: &str| ELSEWHERE.iter().any(|words| message.contains(words));
                problem.errors.iter().any(|error| says(&error.message))
            }
            _ => false,
        }
    }

    fn proposal(&self) -> Option<ProposedDirection> {
        let report = self.result.as_ref().ok()?;
        let maps = report.maps.get(&self.direction).into_iter().flatten();
        let maps = maps
            .filter(|map| is_identifier(symbol(&map.map)))
            .map(ProposedMap::new)
            .collect();
        Some(ProposedDirection {
            direction: self.direction,
            hook: self.hook,
            maps,
        })
    }
}

/// Tells whether a daemon has refused the configuration.
const fn is_refusal(error: &CommandError) -> bool {
    matches!(
        error,
        CommandError::Probe {
            error: ClientError::Refused(_),
            ..
        }
    )
}

/// Sends a configuration for its check.
async fn validate(client: &Client, probe: &ProbeFile) -> Result<ValidationReport, CommandError> {
    let refused = |error| CommandError::Probe {
        error,
        sources: Box::new(probe.sources.clone()),
    };
    let answer = client.validate(&probe.config).await.map_err(refused)?;
    answer.read().map_err(refused)
}

/// Takes out the maps whose metrics are refused. Returns false if there are none.
fn leave_out(directions: &mut [ProposedDirection], findings: &[Finding]) -> bool {
    let mut is_changed = false;
    for finding in findings {
        let Some((direction, rest)) = finding
            .field
            .as_deref()
            .and_then(|field| field.split_once(".metrics["))
        else {
            continue;
        };
        let number = rest
            .split(']')
            .next()
            .and_then(|number| number.parse::<usize>().ok());
        let of = directions
            .iter_mut()
            .find(|of| of.direction.name() == direction);
        // The numbers belong to the metrics as they were sent, so the metrics are changed only
        // after the search.
        let Some((of, number)) = of.zip(number) else {
            continue;
        };
        let place = of
            .maps
            .iter()
            .enumerate()
            .filter(|(_, map)| map.is_metric())
            .nth(number)
            .map(|(at, _)| at);
        if let Some(place) = place.filter(|_| !is_changed) {
            of.maps[place].part = MapPart::Refused(finding.message.clone());
            is_changed = true;
        }
    }
    is_changed
}
