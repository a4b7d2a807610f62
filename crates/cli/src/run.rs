//! Runs the commands.

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use crate::args::{ClientCommand, Command};
use crate::error::CommandError;
use crate::fleet::fleet::Fleet;
use crate::fleet::session::Session;
use crate::options::Options;
use crate::output::print;
use crate::report::reporter::Reporter;

/// Runs one command of the program `whole`. Results go to stdout, messages to stderr.
pub async fn run(command: Command, options: Options, whole: clap::Command) -> ExitCode {
    let reporter = Reporter::new(options.client.verbose);
    let done = match command {
        Command::Convert(command) => command.run(),
        Command::Probes(command) => command.run(),
        Command::Stream(command) => command.run(),
        Command::Completions(command) => command.run(whole),
        Command::Man(command) => command.run(whole),
        Command::Client(command) => match session(&options) {
            Ok(session) => ask(*command, &session).await,
            Err(error) => Err(error),
        },
    };
    exit(done, &reporter)
}

/// Tells why a command failed. Returns the exit status.
pub fn exit(done: Result<(), CommandError>, reporter: &Reporter) -> ExitCode {
    let Err(error) = done else { return ExitCode::SUCCESS };
    print::complain(&format!("twinprobe: {}", reporter.error(&error)));
    ExitCode::from(error.status())
}

/// Returns the daemons that the options name.
pub fn session(options: &Options) -> Result<Session, CommandError> {
    let options = &options.client;
    let fleet = Fleet::new(options.servers.named()?, &options.credentials.read()?)?;
    Ok(Session { fleet, reporter: Reporter::new(options.verbose) })
}

/// Runs a command that talks to running daemons.
async fn ask(command: ClientCommand, session: &Session) -> Result<(), CommandError> {
    match command {
        ClientCommand::Apply(command) => command.run(session).await,
        ClientCommand::Validate(command) => command.run(session).await,
        ClientCommand::Propose(command) => command.run(session).await,
        ClientCommand::List(command) => command.run(session).await,
        ClientCommand::Get(command) => command.run(session).await,
        ClientCommand::Delete(command) => command.run(session).await,
        ClientCommand::Revisions(command) => command.run(session).await,
        ClientCommand::History(command) => command.run(session).await,
        ClientCommand::Diff(command) => command.run(session).await,
        ClientCommand::Rollback(command) => command.run(session).await,
        ClientCommand::Entries(command) => command.run(session).await,
        ClientCommand::Metrics(command) => command.run(session).await,
        ClientCommand::Windows(command) => command.run(session).await,
        ClientCommand::Series(command) => command.run(session).await,
        ClientCommand::Names(command) => command.run(session).await,
        ClientCommand::Watch(command) => command.run(session).await,
        ClientCommand::Events(command) => command.run(session).await,
        ClientCommand::Replay(command) => command.run(session).await,
        ClientCommand::Bench(command) => command.run(session).await,
        ClientCommand::Fleet(command) => command.run(session).await,
        ClientCommand::Rules(command) => command.run(session).await,
        ClientCommand::Top(command) => command.run(session).await,
        ClientCommand::Capabilities(command) => command.run(session).await,
    }
}
