//! `twinprobe probes`.

use clap::Args;
use serde_json::json;
use twinprobe_api::{ConfigDocument, DirectionDocument};

use crate::error::CommandError;
use crate::output::screen::{self, HEADING, Screen};
use crate::output::table::TextTable;
use crate::output::units;
use crate::output::view::ViewOption;
use twinprobe_library::{self as library, Knob, LibraryEntry};

#[derive(Debug, Args)]
pub struct Probes {
    /// Explain this probe: its purpose, hooks, metrics and defines, its cost, and an example of its
    /// output
    #[arg(value_name = "NAME", conflicts_with = "tag")]
    probe: Option<String>,
    /// List only the probes with this tag. Repeatable: probes with all of these tags
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl Probes {
    pub fn run(self) -> Result<(), CommandError> {
        if let Some(name) = &self.probe {
            return self.explain(name);
        }
        let mut probes = library::index();
        probes.retain(|probe| self.tag.iter().all(|tag| probe.tags.contains(tag)));
        self.view
            .output
            .show(&probes, |screen| render(&probes, screen))
    }

    fn explain(&self, name: &str) -> Result<(), CommandError> {
        let (entry, page) = library::entry(name)?;
        let config = library::configuration(name, None)?;
        let macros = macros(&config);
        let sample = section(page, "Output").unwrap_or_default();
        let defines: Vec<_> = macros
            .iter()
            .map(|knob| json!({ "name": knob.name, "default": knob.default, "about": knob.about }))
            .collect();
        let mut value = json!(entry);
        value["defines"] = defines.into();
        value["output"] = sample.into();
        self.view.output.show(&value, |screen| {
            explanation(&entry, &config, &macros, sample, screen)
        })
    }
}

fn render(probes: &[LibraryEntry], screen: Screen) -> String {
    let mut table = TextTable::with_spare(&["DIRECTIONS", "TAGS"]);
    for probe in probes {
        let mut row = table.row();
        row.text("NAME", &probe.name);
        row.text("WHAT IT SHOWS", &probe.title);
        row.text("DIRECTIONS", &probe.directions.join(","));
        row.text("HOOKS", &probe.hooks.join(","));
        row.amount(
            "TRIAL/PACKET",
            probe.cost as f64,
            units::nanoseconds(probe.cost as f64),
        );
        row.text("TAGS", &probe.tags.join(","));
    }
    if table.is_empty() {
        "no probes with these tags\n".to_owned()
    } else {
        table.render(screen)
    }
}

/// The macros that both directions leave open, each once.
fn macros(config: &ConfigDocument) -> Vec<Knob> {
    let directions = [&config.ingress, &config.egress].into_iter().flatten();
    let mut found: Vec<Knob> = Vec::new();
    for knob in directions
        .flat_map(|direction| &direction.source)
        .flat_map(|source| library::defines(source))
    {
        if !found.contains(&knob) {
            found.push(knob);
        }
    }
    found
}

fn explanation(
    entry: &LibraryEntry,
    config: &ConfigDocument,
    macros: &[Knob],
    sample: &str,
    screen: Screen,
) -> String {
    let LibraryEntry {
        name,
        title,
        summary,
        hooks,
        directions,
        cost,
        tags,
        ..
    } = entry;
    let head = screen.paint(HEADING, &format!("{name}: {title}"));
    let facts = format!(
        "hooks       {} (the first unless --hook says otherwise); egress runs at tc\ndirections  {}\ntrial cost  {} per \
         packet: the costliest sample packet, caches warm, on the machine of the documents\ntags        {}\n",
        hooks.join(", "),
        directions.join(", "),
        units::nanoseconds(*cost as f64),
        tags.join(", "),
    );
    let title = |text: &str| screen.paint(HEADING, text);
    let facts = screen::folded(&facts, screen.width, " ");
    let mut blocks = vec![format!("{head}\n{}", filled(summary, screen)), facts];
    blocks.push(format!(
        "{}\n{}",
        title("Metrics"),
        metrics(entry, config).render(screen)
    ));
    if !macros.is_empty() {
        let mut table = TextTable::default();
        for knob in macros {
            let mut row = table.row();
            row.text("--define", &knob.name);
            row.text("DEFAULT", knob.default.as_deref().unwrap_or_default());
            row.whole("WHAT IT IS", knob.about.as_deref().unwrap_or_default());
        }
        blocks.push(format!("{}\n{}", title("Defines"), table.render(screen)));
    }
    if !sample.is_empty() {
        blocks.push(format!("{}\n{sample}\n", title("Output")));
    }
    let egress_only = config.ingress.is_none();
    let at = if hooks.len() > 1 && !egress_only {
        " [--hook tc]"
    } else {
        ""
    };
    blocks.push(format!(
        "{}\ntwinprobe apply --probe {name} --interface IFACE{at}\n",
        title("Deploy it")
    ));
    blocks.join("\n")
}

/// Lists the columns of each metric with their units.
fn metrics(entry: &LibraryEntry, config: &ConfigDocument) -> TextTable {
    let mut table = TextTable::default();
    let mut seen = Vec::new();
    for (direction, of) in [("ingress", &config.ingress), ("egress", &config.egress)] {
        let found = of
            .iter()
            .flat_map(|direction: &DirectionDocument| direction.metrics.iter().flatten());
        for metric in found {
            let name = metric.name.as_deref().unwrap_or_default();
            if metric.export == Some(false) || seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let columns = entry
                .fields
                .get(name)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let columns: Vec<String> = columns
                .iter()
                .map(|column| with_unit(name, column))
                .collect();
            let mut row = table.row();
            row.text("METRIC", name);
            row.text("FIRST IN", direction);
            row.whole(
                "FIELDS",
                &match columns.is_empty() {
                    // A table without rows in the sample, for lack of a define.
                    true if metric.snapshot == Some(true) => "-".to_owned(),
                    true => "events".to_owned(),
                    false => columns.join(", "),
                },
            );
            row.whole("WHAT IT COUNTS", metric.help.as_deref().unwrap_or_default());
        }
    }
    table
}

/// Adds the unit in the name of a column, or in the name of a metric with one number.
fn with_unit(metric: &str, column: &str) -> String {
    let is_key = column == "key" || column.starts_with("key.");
    let of = if column == "value" { metric } else { column };
    let units = [
        ("nanoseconds", "ns"),
        ("microseconds", "us"),
        ("seconds", "s"),
        ("milliseconds", "ms"),
    ];
    let has = |word: &str| {
        of.split(['_', '.'])
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    let unit = units
        .into_iter()
        .find(|(word, _)| has(word))
        .map(|(_, unit)| unit);
    match unit.filter(|_| !is_key) {
        Some(unit) => format!("{column} ({unit})"),
        None => column.to_owned(),
    }
}

/// Returns the first block of text of a section of a README.
fn section<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let (_, section) = page.split_once(&format!("\n## {title}\n"))?;
    let section = section.split("\n## ").next()?;
    let (_, block) = section.split_once("```text\n")?;
    Some(block.split_once("\n```")?.0)
}

/// Breaks the lines of a text at the width of the screen; at 100 columns without a screen.
fn filled(text: &str, screen: Screen) -> String {
    let (mut out, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > screen.width.min(100) {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += width;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_is_explained() {
        for entry in library::index() {
            let (known, page) = library::entry(&entry.name).unwrap();
            let config = library::configuration(&entry.name, None).unwrap();
            let screen = Screen {
                width: 200,
                colour: false,
                wide: false,
            };
            let sample = section(page, "Output").unwrap_or_default();
            let text = explanation(&known, &config, &macros(&config), sample, screen);
            for word in [
                &known.title,
                "Metrics\n",
                &format!("apply --probe {}", entry.name),
            ] {
                assert!(text.contains(word), "{}: {word}\n{text}", entry.name);
            }
            for metric in config
                .ingress
                .iter()
                .chain(&config.egress)
                .flat_map(|of| of.metrics.iter().flatten())
            {
                let name = metric.name.as_deref().unwrap();
                assert!(
                    metric.export == Some(false) || text.contains(name),
                    "{name}\n{text}"
                );
            }
        }
        let dns = library::configuration("dns", None).unwrap();
        let names: Vec<String> = macros(&dns).into_iter().map(|knob| knob.name).collect();
        assert_eq!(
            names,
            ["TIMEOUT", "PENDING", "NAMES", "CLIENTS", "SERVERS", "PORT"]
        );
        assert!(macros(&dns).iter().all(|knob| knob.about.is_some()));
    }

    #[test]
    fn units_follow_from_names() {
        assert_eq!(with_unit("dns_latency_nanoseconds", "value"), "value (ns)");
        assert_eq!(with_unit("m", "nanoseconds_max"), "nanoseconds_max (ns)");
        assert_eq!(with_unit("m", "bytes"), "bytes");
        assert_eq!(with_unit("m_seconds", "key"), "key");
    }

    #[test]
    fn a_section_has_its_first_block() {
        let page = "# a\n\n## Output\n\nFor it:\n\n```text\none\ntwo\n```\n\n## Limits\n";
        assert_eq!(
            (section(page, "Output"), section(page, "Limits")),
            (Some("one\ntwo"), None)
        );
        assert_eq!(
            filled(
                "one two three",
                Screen {
                    width: 8,
                    colour: false,
                    wide: false
                }
            ),
            "one two\nthree\n"
        );
    }
}
