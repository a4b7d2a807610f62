//! The options that any command accepts: those of clients, which commands without a daemon do not
//! have, and those of logs.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, ValueEnum};

use crate::credentials::CredentialOptions;
use crate::fleet::servers::ServerOptions;

/// The heading of the options of clients.
const CLIENT: &str = "Client options";
/// The commands that talk to no daemon.
const WITHOUT_DAEMON: [&str; 9] = [
    "serve",
    "convert",
    "probes",
    "stream",
    "completions",
    "man",
    "store",
    "build",
    "token",
];

#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub client: ClientOptions,
    #[command(flatten)]
    pub log: LogOptions,
}

/// Says which daemons a command talks to, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct ClientOptions {
    #[command(flatten)]
    pub servers: ServerOptions,
    #[command(flatten)]
    pub credentials: CredentialOptions,
    /// Show the whole output of the compiler or of the verifier
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogOptions {
    /// Format of log lines
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Lowest level of the log lines that are written: error, warn, info, debug or trace; or levels
    /// by module, as in RUST_LOG
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Removes the options of clients from the help of commands that talk to no daemon.
pub fn for_clients_only(command: Command) -> Command {
    let options: Vec<Arg> = of_clients(&command).cloned().collect();
    let known: Vec<&str> = WITHOUT_DAEMON
        .into_iter()
        .filter(|name| command.find_subcommand(name).is_some())
        .collect();
    known.into_iter().fold(command, |command, name| {
        // An option of the command itself replaces the option of all commands.
        let hidden = options.iter().filter(|option| is_misplaced(name, option));
        let hidden: Vec<Arg> = hidden
            .cloned()
            .map(|option| option.hide(true).global(false))
            .collect();
        command.mut_subcommand(name, |command| command.args(hidden))
    })
}

/// Returns the mistake of a command line that gives an option of clients to a command which talks
/// to no daemon.
pub fn misplaced(command: &mut Command, matches: &ArgMatches) -> Option<clap::Error> {
    let name = matches
        .subcommand_name()
        .filter(|name| WITHOUT_DAEMON.contains(name))?;
    let is_given = |option: &&Arg| {
        is_misplaced(name, option)
            && matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let given = of_clients(command)
        .find(is_given)?
        .get_long()
        .unwrap_or_default()
        .to_owned();
    let message = format!("`{name}` does not talk to a daemon, so --{given} is not possible");
    Some(command.error(ErrorKind::UnknownArgument, message))
}

fn of_clients(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|option| option.get_help_heading() == Some(CLIENT))
}

/// `build` shows the compiler's output.
fn is_misplaced(command: &str, option: &Arg) -> bool {
    command != "build" || option.get_id() != "verbose"
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    fn command() -> Command {
        let command = Options::augment_args(Command::new("twinprobe"));
        for_clients_only(command.subcommands([
            Command::new("serve"),
            Command::new("build"),
            Command::new("list"),
        ]))
    }

    #[test]
    fn only_clients_have_the_options_of_clients() {
        let help = |name: &str| {
            let mut command = command();
            command.build();
            command
                .find_subcommand_mut(name)
                .unwrap()
                .render_long_help()
                .to_string()
        };
        assert!(
            help("list").contains("Client options:\n") && help("list").contains("--token-file")
        );
        assert!(!help("serve").contains("Client options") && !help("serve").contains("--server"));
        assert!(help("serve").contains("Logging:\n"));
        assert!(help("build").contains("--verbose") && !help("build").contains("--server"));
    }

    #[test]
    fn an_option_for_clients_is_refused_elsewhere() {
        let check = |line: &str| {
            let mut command = command();
            let matches = command.clone().get_matches_from(line.split(' '));
            misplaced(&mut command, &matches).map(|error| error.to_string())
        };
        for fine in [
            "twinprobe list --server unix:/s",
            "twinprobe build --verbose",
            "twinprobe serve --log-level warn",
        ] {
            assert_eq!(check(fine), None, "{fine}");
        }
        for wrong in [
            "twinprobe serve --server unix:/s",
            "twinprobe --server unix:/s serve",
            "twinprobe --verbose serve",
        ] {
            let error = check(wrong).expect(wrong);
            assert!(
                error.contains("`serve` does not talk to a daemon"),
                "{error}"
            );
        }
    }
}
