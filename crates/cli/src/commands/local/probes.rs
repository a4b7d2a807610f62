//! `twinprobe probes`.

use clap::Args;

use crate::error::CommandError;
use crate::library::{self, Entry};
use crate::output::screen::Screen;
use crate::output::table::Table;
use crate::output::units;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct Probes {
    /// List only the probes with this tag. Repeatable: probes with all of these tags
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl Probes {
    pub fn run(self) -> Result<(), CommandError> {
        let mut probes = library::index();
        probes.retain(|probe| self.tag.iter().all(|tag| probe.tags.contains(tag)));
        self.view.output.show(&probes, |screen| render(&probes, screen))
    }
}

fn render(probes: &[Entry], screen: Screen) -> String {
    let mut table = Table::default();
    for probe in probes {
        let mut row = table.row();
        row.text("NAME", &probe.name);
        row.text("WHAT IT SHOWS", &probe.title);
        row.text("DIRECTIONS", &probe.directions.join(","));
        row.text("HOOKS", &probe.hooks.join(","));
        row.amount("COST/PACKET", probe.cost as f64, units::nanoseconds(probe.cost as f64));
        row.text("TAGS", &probe.tags.join(","));
    }
    if table.is_empty() { "no probes with these tags\n".to_owned() } else { table.render(screen) }
}
