//! `twinprobe probes`.

use clap::Args;

use crate::error::CommandError;
use crate::library::{self, Entry};
use crate::output::print;
use crate::output::table::Table;

#[derive(Debug, Args)]
pub struct Probes {
    /// List only the probes with this tag. Repeatable: probes with all of these tags
    #[arg(long)]
    tag: Vec<String>,
}

impl Probes {
    pub fn run(self) -> Result<(), CommandError> {
        let mut probes = library::index();
        probes.retain(|probe| self.tag.iter().all(|tag| probe.tags.contains(tag)));
        print::print(render(&probes, print::width()))
    }
}

fn render(probes: &[Entry], width: usize) -> String {
    let mut table = Table::default();
    for probe in probes {
        let mut row = table.row();
        row.text("NAME", &probe.name);
        row.text("WHAT IT SHOWS", &probe.title);
        row.text("DIRECTIONS", &probe.directions.join(","));
        row.text("HOOKS", &probe.hooks.join(","));
        row.number("NS/PACKET", &probe.cost.to_string());
        row.text("TAGS", &probe.tags.join(","));
    }
    if table.is_empty() { "no probes with these tags\n".to_owned() } else { table.render(width) }
}
