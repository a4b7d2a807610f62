//! `twinprobe token`.

use clap::Args;

use crate::error::CommandError;
use crate::output::print;
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
}

impl Token {
    /// Prints the token, which nobody can find out again, and below it the line for the file.
    pub fn run(self) -> Result<(), CommandError> {
        let token = tokens::generate()?;
        let line = tokens::line(&self.name, self.role, &token);
        print::print(format!("{token}\n{line}").as_bytes())
    }
}
