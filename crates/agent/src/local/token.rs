//! `twinprobe token`.

use clap::Args;
use serde_json::json;

use twinprobe_access::Role;
use twinprobe_access::check_name;
use twinprobe_access::tokens;
use twinprobe_cli::CommandError;
use twinprobe_cli::output::view::OutputView;

#[derive(Debug, Args)]
pub struct TokenCommand {
    /// Name of the token
    #[arg(value_parser = |name: &str| check_name(name).map(|()| name.to_owned()))]
    name: String,
    /// Role of the token
    #[arg(value_enum)]
    role: Role,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = OutputView::Table)]
    output: OutputView,
}

impl TokenCommand {
    /// Prints the token, which is stored nowhere, and below it the line for the file.
    pub fn run(self) -> Result<(), CommandError> {
        let token = tokens::generate()?;
        let line = tokens::line(&self.name, self.role, &token);
        let value = json!({ "name": self.name, "role": self.role.to_string(), "token": token, "line": line });
        self.output.show(&value, |_| format!("{token}\n{line}"))
    }
}
