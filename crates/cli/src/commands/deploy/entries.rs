//! `twinprobe entries`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use twinprobe_api::MapEntries;
use twinprobe_ebpf_common::request::MapEntry;

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct Entries {
    /// The probe
    name: String,
    /// The map, which the configuration fills
    map: String,
    /// New entries, which replace all entries of the map: a list of {key: K, value: V} in JSON or
    /// YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Reason for the change, which `revisions` shows
    #[arg(short, long, value_name = "WHY", requires = "file")]
    message: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl Entries {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let Self {
            name,
            map,
            file,
            message,
            view,
        } = self;
        let client = session.fleet.one()?;
        let Some(file) = file else {
            let answer = client.entries(&name, &map).await?;
            let entries = answer.read()?;
            return view.output.show(&print::value(&answer)?, |screen| {
                table(&entries.entries, screen)
            });
        };
        let entries = read(&file)?;
        let answer = client
            .put_entries(&name, &map, &entries, message.as_deref())
            .await?;
        let done = answer.read()?;
        view.output.show(&print::value(&answer)?, |_| line(&done))
    }
}

/// Reads entries from a file: a list, or the field `entries` of an object, as the command shows
/// them.
fn read(path: &Path) -> Result<Vec<MapEntry>, CommandError> {
    let stdin = path.as_os_str() == "-";
    let text = if stdin {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|source| CommandError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text).map_err(|problem| CommandError::Entries {
        path: path.to_owned(),
        problem,
    })
}

fn parse(text: &str) -> Result<Vec<MapEntry>, String> {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => yaml_serde::from_str(text).map_err(|error| error.to_string())?,
    };
    let list = match value {
        Value::Object(mut fields) => fields.remove("entries").unwrap_or_default(),
        value => value,
    };
    let Value::Array(entries) = list else {
        return Err("a list of entries such as {key: K, value: V} is needed".to_owned());
    };
    let entry = |(index, entry): (usize, Value)| {
        serde_json::from_value(entry).map_err(|error| format!("entry {index}: {error}"))
    };
    entries.into_iter().enumerate().map(entry).collect()
}

fn table(entries: &[MapEntry], screen: Screen) -> String {
    let mut table = TextTable::default();
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    for entry in entries {
        let mut row = table.row();
        row.text("KEY", &text(&entry.key));
        row.text("VALUE", &text(&entry.value));
    }
    table.render(screen)
}

fn line(done: &MapEntries) -> String {
    let MapEntries {
        probe,
        map,
        revision,
        entries,
        ..
    } = done;
    format!(
        "map {map} of {probe} has {} entries; it is revision {revision}",
        entries.len()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_read_as_they_are_shown() {
        let wanted = [MapEntry {
            key: json!("192.0.2.1"),
            value: json!(1),
        }];
        assert_eq!(
            parse(r#"[{"key": "192.0.2.1", "value": 1}]"#).unwrap(),
            wanted
        );
        assert_eq!(parse("- key: 192.0.2.1\n  value: 1\n").unwrap(), wanted);
        let answer = json!({ "probe": "p", "map": "m", "revision": 1, "entries": wanted });
        assert_eq!(parse(&answer.to_string()).unwrap(), wanted);
    }

    #[test]
    fn mistakes_are_told_with_their_entry() {
        let refused = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            refused(r#"[{"key": 1, "value": 1}, {"key": 1}]"#),
            "entry 1: missing field `value`"
        );
        assert!(refused("{}").contains("a list of entries"));
        assert!(refused("{").contains("at line"), "{}", refused("{"));
    }
}
