//! Runs the commands.

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use crate::args::Command;
use crate::error::CommandError;
use crate::fleet::fleet::Fleet;
use crate::fleet::session::Session;
use crate::options::Options;
use crate::output::print;
use crate::report::reporter::Reporter;

/// Runs one command of the program `whole`. Results go to stdout, messages to stderr.
pub async fn run(command: Command, options: Options, whole: clap::Command) -> ExitCode {
    let reporter = Reporter::new(options.client.verbose);
    let done = command.run(|| session(&options), whole).await;
    exit(done, &reporter)
}

/// Reports why a command failed. Returns the exit status.
pub fn exit(done: Result<(), CommandError>, reporter: &Reporter) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    print::complain(&format!("twinprobe: {}", reporter.error(&error)));
    ExitCode::from(error.status())
}

/// Returns the daemons that the options name.
pub fn session(options: &Options) -> Result<Session, CommandError> {
    let options = &options.client;
    let fleet = Fleet::new(options.servers.named()?, &options.credentials.read()?)?;
    Ok(Session {
        fleet,
        reporter: Reporter::new(options.verbose),
    })
}
