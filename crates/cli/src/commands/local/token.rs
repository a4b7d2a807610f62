//! `twinprobe token`.

use clap::Args;
use serde_json::json;

use crate::error::CommandError;
use crate::output::view::View;
use twinprobe_serve::Role;
use twinprobe_serve::check_name;
use twinprobe_serve::tokens;

#[derive(Debug, Args)]
pub struct Token {
    /// Name of the token
    #[arg(value_parser = |name: &str| check_name(name).map(|()| name.to_owned()))]
    name: String,
    /// Role of the token
    #[arg(value_enum)]
    role: Role,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = View::Table)]
    output: View,
}

impl Token {
    /// Prints the token, which nobody can find out again, and below it the line for the file.
    pub fn run(self) -> Result<(), CommandError> {
        let token = tokens::generate()?;
        let line = tokens::line(&self.name, self.role, &token);
        let value = json!({ "name": self.name, "role": self.role.to_string(), "token": token, "line": line });
        self.output.show(&value, |_| format!("{token}\n{line}"))
    }
}
