//! `twinprobe rules library`.

use clap::Args;
use twinprobe_library::{LibraryRule, library_rule, rules};

use crate::error::CommandError;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::view::ViewOption;

/// Lists the rules of the library, or shows one
#[derive(Debug, Args)]
pub struct RuleLibrary {
    /// Show this rule, as a file for --file
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl RuleLibrary {
    pub fn run(self) -> Result<(), CommandError> {
        if let Some(name) = &self.name {
            let rule = library_rule(name)?;
            return self.view.output.show(&rule, |_| rule.text.to_owned());
        }
        let rules = rules();
        self.view
            .output
            .show(&rules, |screen| table(&rules, screen))
    }
}

fn table(rules: &[LibraryRule], screen: Screen) -> String {
    let mut table = TextTable::default();
    for rule in rules {
        let mut row = table.row();
        row.text("NAME", &rule.name);
        row.text("WATCHES", &rule.rule.watch);
        row.text("WHAT IT SEES", &rule.title);
    }
    table.render(screen)
}
