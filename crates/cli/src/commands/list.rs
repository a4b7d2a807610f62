//! `twinprobe list`.

use twinprobe_client::{AttachmentStatus, Client, ProbeStatus};
use twinprobe_ebpf_common::Direction;

use crate::error::CommandError;
use crate::output::print;
use crate::output::table::Table;

pub async fn list(client: &Client) -> Result<(), CommandError> {
    let list = client.probes().await?.read()?;
    print::print(render(&list.probes, print::width()))
}

fn render(probes: &[ProbeStatus], width: usize) -> String {
    let mut table = Table::default();
    for probe in probes {
        let mut row = table.row();
        row.text("NAME", &probe.name);
        row.text("STATE", &probe.state);
        row.text("INTERFACES", &distinct(probe, |at| Some(at.interface.clone())));
        for direction in Direction::ALL {
            let hook = |at: &AttachmentStatus| {
                let words = [&at.hook, &at.mode].map(|word| word.as_deref().unwrap_or_default());
                (at.direction == Some(direction)).then(|| words.join(" ").trim().to_owned())
            };
            let hooks = distinct(probe, hook);
            row.text(&direction.name().to_uppercase(), if hooks.is_empty() { "-" } else { &hooks });
        }
        row.text("CREATED", &probe.created);
        if let Some(reason) = &probe.reason {
            row.text("REASON", reason);
        }
    }
    if table.is_empty() { "no probes\n".to_owned() } else { table.render(width) }
}

/// Collects the words of the attachments, without repetitions.
fn distinct(probe: &ProbeStatus, say: impl Fn(&AttachmentStatus) -> Option<String>) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in probe.interfaces.iter().filter_map(say) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn probes_are_listed_with_their_hooks() {
        let at = |interface, direction, hook, mode| json!({ "interface": interface, "state": "attached", "direction": direction, "hook": hook, "mode": mode });
        let probe = |name, state, interfaces: &[Value], reason: Option<&str>| -> ProbeStatus {
            let windows =
                json!({ "retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0, "damaged": 0 });
            let status = json!({
                "name": name, "state": state, "reason": reason, "interfaces": interfaces, "created": "2026-11-21T10:00:00Z",
                "revision": 1, "programs": {}, "windows": windows, "warnings": [], "config": {},
            });
            serde_json::from_value(status).unwrap()
        };
        let interfaces = [
            at("eth0", "ingress", "xdp", "native"),
            at("eth1", "ingress", "xdp", "native"),
            at("eth0", "egress", "tc", "tcx"),
        ];
        let running = [
            probe("flow-features", "running", &interfaces, None),
            probe("b", "running", &interfaces[..1], None),
        ];
        assert_eq!(
            render(&running, 200),
            "\
NAME           STATE    INTERFACES  INGRESS     EGRESS  CREATED
flow-features  running  eth0,eth1   xdp native  tc tcx  2026-11-21T10:00:00Z
b              running  eth0        xdp native  -       2026-11-21T10:00:00Z
"
        );
        let failed = [probe("c", "failed", &[], Some("no eth0"))];
        let reason = "\
NAME  STATE   INTERFACES  INGRESS  EGRESS  CREATED               REASON
c     failed              -        -       2026-11-21T10:00:00Z  no eth0
";
        assert_eq!(render(&failed, 200), reason);
        assert_eq!(render(&[], 200), "no probes\n");
    }
}
