//! `twinprobe revisions`.

use clap::Args;
use twinprobe_api::Revision;

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct RevisionsCommand {
    /// The probe
    name: String,
    #[command(flatten)]
    view: ViewOption,
}

impl RevisionsCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let answer = session.fleet.one()?.revisions(&self.name).await?;
        let list = answer.read()?;
        self.view.output.show(&print::value(&answer)?, |screen| {
            render(&list.revisions, screen)
        })
    }
}

fn render(revisions: &[Revision], screen: Screen) -> String {
    let mut table = TextTable::default();
    for revision in revisions.iter().rev() {
        let mut row = table.row();
        row.number("REVISION", &revision.revision.to_string());
        row.text("", if revision.current { "runs" } else { "" });
        row.text("DEPLOYED", &times::short(&revision.created));
        row.text("BY", revision.pushed_by.as_deref().unwrap_or("-"));
        row.text("WHY", revision.message.as_deref().unwrap_or_default());
    }
    table.render(screen)
}

#[cfg(test)]
mod tests {
    use twinprobe_api::ConfigDocument;

    use super::*;

    #[test]
    fn the_newest_revision_comes_first() {
        let revision = |revision, message: Option<&str>, current| Revision {
            revision,
            created: "2026-11-21T10:00:00Z".to_owned(),
            pushed_by: Some("uid:0".to_owned()),
            message: message.map(str::to_owned),
            current,
            config: ConfigDocument::default(),
        };
        let list = [revision(9, None, false), revision(10, Some("ports"), true)];
        let at = times::short("2026-11-21T10:00:00Z");
        assert_eq!(
            render(
                &list,
                Screen {
                    width: 100,
                    colour: false,
                    wide: false
                }
            ),
            format!(
                "\
REVISION        DEPLOYED             BY     WHY
      10  runs  {at}  uid:0  ports
       9        {at}  uid:0
"
            )
        );
    }
}
