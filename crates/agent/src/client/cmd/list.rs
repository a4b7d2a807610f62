//! `twinprobe list`.

use clap::Args;
use hyper::Method;
use serde_json::Value;

use crate::client::http::{self, JSON};
use crate::client::table::Table;
use crate::client::{ClientError, Server, output};

#[derive(Debug, Args)]
pub struct List {}

impl List {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let answer = http::send(server, Method::GET, "/v1/probes", JSON, None).await?.json()?;
        Ok(output::print(render(&answer, output::width()).as_bytes())?)
    }
}

fn render(answer: &Value, width: usize) -> String {
    let mut table = Table::default();
    for probe in answer["probes"].as_array().into_iter().flatten() {
        let mut row = table.row();
        row.text("NAME", text(&probe["name"]));
        row.text("STATE", text(&probe["state"]));
        row.text("INTERFACES", &distinct(probe, |at| Some(text(&at["interface"]).to_owned())));
        for direction in ["ingress", "egress"] {
            let hook = |at: &Value| {
                let (hook, mode) = (text(&at["hook"]), text(&at["mode"]));
                (at["direction"] == direction).then(|| format!("{hook} {mode}").trim().to_owned())
            };
            let hooks = distinct(probe, hook);
            row.text(&direction.to_uppercase(), if hooks.is_empty() { "-" } else { &hooks });
        }
        row.text("CREATED", text(&probe["created"]));
        if let Some(reason) = probe["reason"].as_str() {
            row.text("REASON", reason);
        }
    }
    if table.is_empty() { "no probes\n".to_owned() } else { table.render(width) }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What the attachments say, without repetitions.
fn distinct(probe: &Value, say: impl Fn(&Value) -> Option<String>) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in probe["interfaces"].as_array().into_iter().flatten().filter_map(say) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn probes_are_listed_with_their_hooks() {
        let at = |interface: &str, direction: &str, hook: &str, mode: &str| json!({ "interface": interface, "ifindex": 2, "direction": direction, "hook": hook, "mode": mode });
        let interfaces = [
            at("eth0", "ingress", "xdp", "native"),
            at("eth1", "ingress", "xdp", "native"),
            at("eth0", "egress", "tc", "tcx"),
        ];
        let answer = json!({ "probes": [
            { "name": "flow-features", "state": "running", "interfaces": interfaces, "created": "2026-11-21T10:00:00Z" },
            { "name": "b", "state": "running", "interfaces": [interfaces[0]], "created": "2026-11-21T10:00:00Z" },
        ] });
        assert_eq!(
            render(&answer, 200),
            "\
NAME           STATE    INTERFACES  INGRESS     EGRESS  CREATED
flow-features  running  eth0,eth1   xdp native  tc tcx  2026-11-21T10:00:00Z
b              running  eth0        xdp native  -       2026-11-21T10:00:00Z
"
        );
        let failed =
            json!({ "probes": [{ "name": "c", "state": "failed", "reason": "no eth0", "created": "" }] });
        let reason = "\
NAME  STATE   INTERFACES  INGRESS  EGRESS  CREATED  REASON
c     failed              -        -                no eth0
";
        assert_eq!(render(&failed, 200), reason);
        assert_eq!(render(&json!({ "probes": [] }), 200), "no probes\n");
        assert_eq!(render(&json!(5), 200), "no probes\n");
    }
}
