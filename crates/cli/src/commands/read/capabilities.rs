//! `twinprobe capabilities`.

use clap::Args;
use serde_json::Value;

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct CapabilitiesCommand {
    #[command(flatten)]
    view: ViewOption,
}

impl CapabilitiesCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let answer = session.fleet.one()?.capabilities().await?;
        let value = print::value(&answer)?;
        self.view
            .output
            .show(&value, |screen| render(&value, screen))
    }
}

fn render(answer: &Value, screen: Screen) -> String {
    let mut features = TextTable::default();
    let parts = ["kernel", "compiler"].map(|part| (part, answer[part].as_object()));
    for (part, values) in parts {
        for (name, value) in values
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_array())
        {
            let mut row = features.row();
            row.text("FEATURE", &format!("{part} {}", name.replace('_', " ")));
            row.text("", &word(value));
        }
    }
    for method in list(&answer["kernel"]["quiesce_methods"]) {
        let mut row = features.row();
        row.text("FEATURE", &format!("quiesce by {}", word(&method["name"])));
        let reason = method["reason"]
            .as_str()
            .map(|reason| format!(": {reason}"));
        row.text(
            "",
            &format!(
                "{}{}",
                word(&method["available"]),
                reason.unwrap_or_default()
            ),
        );
    }
    let mut maps = TextTable::default();
    for map in list(&answer["maps"]).chain(list(&answer["events"])) {
        let mut row = maps.row();
        row.text("MAP TYPE", &word(&map["type"]));
        // Event maps have no choice of strategies: they are streamed.
        let strategy = map["strategy"].as_str().unwrap_or("stream");
        row.text(
            "STRATEGY",
            if map["unavailable"].is_string() {
                "-"
            } else {
                strategy
            },
        );
        let (batches, single) = operations(map);
        row.text("ONE BY ONE", &single.join(", "));
        row.text("IN BATCHES", &batches.join(", "));
        if let Some(reason) = map["unavailable"].as_str() {
            row.text("UNAVAILABLE", reason);
        }
    }
    format!("{}\n{}", features.render(screen), maps.render(screen))
}

/// Returns the operations that work in batches, and those that work one by one.
fn operations(map: &Value) -> (Vec<String>, Vec<String>) {
    let operations = map["operations"].as_object().into_iter().flatten();
    let works = operations
        .filter(|(_, works)| works.as_bool() == Some(true))
        .map(|(name, _)| name);
    let (batches, single): (Vec<&String>, Vec<&String>) =
        works.partition(|name| name.ends_with("_batch"));
    let words = |names: Vec<&String>| {
        let word = |name: &String| name.trim_end_matches("_batch").replace("_and_", "+");
        names.into_iter().map(word).collect()
    };
    (words(batches), words(single))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn features_and_maps_are_listed() {
        let answer = json!({
            "kernel": { "release": "6.18.0", "possible_cpus": 2, "quiesce": "membarrier", "quiesce_methods": [
                { "name": "sweep", "available": false, "reason": "CPU 1 can't be visited" },
                { "name": "membarrier", "available": true } ], "tcx": true },
            "compiler": { "version": "clang version 14.0.6" },
            "maps": [
                { "type": "hash", "operations": { "iterate": true, "lookup_batch": true, "update_batch": false,
                    "lookup_and_delete_batch": true },
                  "strategy": "iterative" },
                { "type": "lpm_trie", "operations": { "iterate": false }, "unavailable": "Invalid argument" },
            ],
            "events": [{ "type": "ringbuf" }],
        });
        let expected = "\
FEATURE
kernel release         6.18.0
kernel possible cpus   2
kernel quiesce         membarrier
kernel tcx             yes
compiler version       clang version 14.0.6
quiesce by sweep       no: CPU 1 can't be visited
quiesce by membarrier  yes

MAP TYPE  STRATEGY   ONE BY ONE  IN BATCHES             UNAVAILABLE
hash      iterative  iterate     lookup, lookup+delete
lpm_trie  -                                             Invalid argument
ringbuf   stream
";
        assert_eq!(
            render(
                &answer,
                Screen {
                    width: 100,
                    colour: false,
                    wide: false
                }
            ),
            expected
        );
    }
}
