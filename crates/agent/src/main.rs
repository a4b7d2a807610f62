//! The binary `twinprobe`, which contains the daemon and its client.

#![forbid(unsafe_code)]

mod api;
mod engine;
mod folder;
mod history;
mod libxdp;
mod limits;
mod local;
mod names;
mod nodes;
mod privileges;
mod rules;
mod serve;
mod store;
mod telemetry;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use twinprobe_cli::LogFormat;

use crate::engine::deploy::examination::Examine;
use crate::local::command::LocalCommand;
use crate::serve::Serve;

/// Fully adaptive network monitoring: eBPF probes pushed over HTTP, exact windows out.
#[derive(Debug, Parser)]
#[command(name = "twinprobe", version, about)]
struct Cli {
    #[command(flatten)]
    options: twinprobe_cli::Options,
    #[command(subcommand)]
    command: DaemonCommand,
}

#[derive(Debug, Subcommand)]
enum DaemonCommand {
    /// Run the daemon in the foreground
    Serve(Box<Serve>),
    /// Read the store of a state directory
    Store(local::store::StoreCommands),
    #[command(hide = true)]
    Examine(Examine),
    #[command(flatten)]
    Local(LocalCommand),
    #[command(flatten)]
    Other(twinprobe_cli::Command),
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|command| command == "stream") {
        // A stream has its own options, even if the daemon has an option of that name.
        eprintln!("twinprobe: {}", twinprobe_cli::hand_over(arguments));
        return ExitCode::FAILURE;
    }
    let cli = parse();
    if let Err(error) = start_logging(&cli.options) {
        eprintln!("twinprobe: {error:#}");
        return ExitCode::from(2);
    }
    twinprobe_kernel::memory::return_freed_memory();
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twinprobe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line, or ends the program with an error about it.
fn parse() -> Cli {
    let mut command = twinprobe_cli::for_clients_only(Cli::command());
    let matches = command.clone().get_matches();
    if let Some(error) = twinprobe_cli::misplaced(&mut command, &matches) {
        error.exit();
    }
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        DaemonCommand::Serve(options) => privileges::drop(options.needs())?,
        DaemonCommand::Examine(_) => privileges::drop_all()?,
        _ => {}
    }
    let runtime = runtime(&cli.command)?;
    let result = runtime.block_on(run(cli));
    // Waiting would hang on threads that are stuck in a call to the kernel.
    runtime.shutdown_background();
    result
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        DaemonCommand::Serve(options) => serve::serve(*options).await?,
        DaemonCommand::Examine(command) => command.run()?,
        DaemonCommand::Store(command) => command.run()?,
        DaemonCommand::Local(command) => return Ok(command.run(&cli.options).await),
        DaemonCommand::Other(command) => {
            return Ok(twinprobe_cli::run(
                command,
                cli.options,
                twinprobe_cli::for_clients_only(Cli::command()),
            )
            .await);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the runtime: two worker threads for the daemon, since kernel work runs on blocking
/// threads, and the main thread for a client.
fn runtime(command: &DaemonCommand) -> std::io::Result<tokio::runtime::Runtime> {
    match command {
        DaemonCommand::Serve(_) => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build(),
        DaemonCommand::Examine(_)
        | DaemonCommand::Store(_)
        | DaemonCommand::Local(_)
        | DaemonCommand::Other(_) => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build(),
    }
}

/// Starts logging to stderr. `--log-level`, else `RUST_LOG`, chooses the level and modules, `info`
/// by default.
fn start_logging(options: &twinprobe_cli::Options) -> anyhow::Result<()> {
    let filter: Targets = match &options.log.log_level {
        Some(level) => level
            .parse()
            .with_context(|| format!("--log-level {level}"))?,
        None => std::env::var("RUST_LOG")
            .ok()
            .and_then(|levels| levels.parse().ok())
            .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO)),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        // The reader of the log may have ended; a line that can't be written must not make a
        // request fail.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match options.log.log_format {
        LogFormat::Text => subscriber.finish().with(filter).init(),
        LogFormat::Json => subscriber.json().finish().with(filter).init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// clap would mistake the option for the global one, and panic at its type.
    fn check(command: &clap::Command, globals: &[clap::Id]) {
        let own = || command.get_arguments();
        for argument in own() {
            assert!(
                !globals.contains(argument.get_id()),
                "{} {argument}",
                command.get_name()
            );
        }
        let new = own().filter(|argument| argument.is_global_set());
        let globals: Vec<clap::Id> = new.map(clap::Arg::get_id).chain(globals).cloned().collect();
        command
            .get_subcommands()
            .for_each(|command| check(command, &globals));
    }

    #[test]
    fn no_option_of_a_command_has_the_name_of_a_global_one() {
        let command = Cli::command();
        assert!(
            command.get_arguments().any(clap::Arg::is_global_set),
            "there are global options"
        );
        check(&command, &[]);
    }
}
