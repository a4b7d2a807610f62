//! `twinprobe diff`.

use clap::Args;
use serde_json::json;
use similar::{ChangeTag, TextDiff};
use twinprobe_api::{ConfigDocument, Revision};

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::screen::{ERROR, GOOD, HEADING, HINT, Screen};
use crate::output::view::{ViewOption, yaml};

/// The number of lines around each difference.
const AROUND: usize = 3;

/// Shows the differences between two configurations of a probe, by default between the previous and
/// the present one.
#[derive(Debug, Args)]
pub struct Diff {
    /// The probe
    name: String,
    /// The earlier revision; by default the one before TO
    from: Option<u64>,
    /// The later revision; by default the present one
    to: Option<u64>,
    #[command(flatten)]
    view: ViewOption,
}

impl Diff {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let Self {
            name,
            from,
            to,
            view,
        } = self;
        let list = session
            .fleet
            .one()?
            .revisions(&name)
            .await?
            .read()?
            .revisions;
        let to = find(&name, &list, to, |revision| revision.current)?;
        let before = list
            .iter()
            .map(|revision| revision.revision)
            .filter(|number| *number < to.revision)
            .max();
        let from = from
            .or(before)
            .ok_or_else(|| CommandError::OneRevision { name: name.clone() })?;
        let from = find(&name, &list, Some(from), |_| false)?;
        let titles = [from, to].map(|revision| format!("{name} revision {}", revision.revision));
        let diff = |screen| difference(&titles, [&from.config, &to.config], screen);
        let plain = diff(Screen {
            width: usize::MAX,
            colour: false,
            wide: false,
        });
        let value = json!({ "name": name, "from": from.revision, "to": to.revision, "same": plain.is_empty(), "diff": plain });
        let nothing = || format!("{} and {} are the same", titles[0], titles[1]);
        view.output.show(&value, |screen| {
            if plain.is_empty() {
                nothing()
            } else {
                diff(screen)
            }
        })
    }
}

fn find<'a>(
    name: &str,
    list: &'a [Revision],
    number: Option<u64>,
    by_default: impl Fn(&Revision) -> bool,
) -> Result<&'a Revision, CommandError> {
    let is_it = |revision: &&Revision| match number {
        Some(number) => revision.revision == number,
        None => by_default(revision),
    };
    list.iter().find(is_it).ok_or_else(|| {
        let known: Vec<String> = list
            .iter()
            .map(|revision| revision.revision.to_string())
            .collect();
        CommandError::NoRevision {
            name: name.to_owned(),
            number: number.unwrap_or_default(),
            known: known.join(", "),
        }
    })
}

/// Returns the difference in the unified format; nothing if there is none.
fn difference(titles: &[String; 2], configs: [&ConfigDocument; 2], screen: Screen) -> String {
    // YAML shows a source line by line.
    let [from, to] = configs.map(|config| yaml(&serde_json::to_value(config).unwrap_or_default()));
    let diff = TextDiff::from_lines(&from, &to);
    let mut text = String::new();
    for hunk in diff.unified_diff().context_radius(AROUND).iter_hunks() {
        text.push_str(&screen.paint(HINT, &hunk.header().to_string()));
        text.push('\n');
        for change in hunk.iter_changes() {
            let line = change.value().trim_end_matches('\n');
            text.push_str(&match change.tag() {
                ChangeTag::Delete => screen.paint(ERROR, &format!("-{line}")),
                ChangeTag::Insert => screen.paint(GOOD, &format!("+{line}")),
                ChangeTag::Equal => format!(" {line}"),
            });
            text.push('\n');
        }
    }
    if text.is_empty() {
        return text;
    }
    let head = screen.paint(HEADING, &format!("--- {}\n+++ {}", titles[0], titles[1]));
    format!("{head}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_source_are_compared() {
        let config = |source: &str, interface: &str| -> ConfigDocument {
            serde_json::from_value(
                json!({ "interface": interface, "ingress": { "source": source } }),
            )
            .unwrap()
        };
        let titles = ["p revision 1".to_owned(), "p revision 2".to_owned()];
        let (one, two) = (
            config("int a;\nint b;\nint c;\n", "ux0"),
            config("int a;\nlong b;\nint c;\n", "ux0"),
        );
        let screen = Screen {
            width: 80,
            colour: false,
            wide: false,
        };
        let text = difference(&titles, [&one, &two], screen);
        assert!(
            text.starts_with("--- p revision 1\n+++ p revision 2\n@@ "),
            "{text}"
        );
        assert!(text.contains("\n-    int b;\n+    long b;\n"), "{text}");
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with(['-', '+']))
                .count(),
            4
        );
        assert_eq!(difference(&titles, [&one, &one], screen), "");
    }
}
