//! The command line.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::control::people::{ProbeArgument, pause, promote};
use crate::control::run::{RunOptions, run_operator};
use crate::node::agent::run_node;
use crate::node::options::NodeOptions;
use crate::objects::definitions::definitions_yaml;

#[derive(Parser)]
#[command(
    name = "twinprobe-operator",
    version,
    about = "Probes as Kubernetes objects"
)]
struct Args {
    #[command(subcommand)]
    command: OperatorCommand,
    /// Format of the log on stderr
    #[arg(long, global = true, value_enum, default_value_t = OperatorLogFormat::Text)]
    log_format: OperatorLogFormat,
    /// Lowest level of the log, such as `debug`; by default that of `RUST_LOG`
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OperatorLogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum OperatorCommand {
    /// Print the custom resource definitions, for `kubectl apply -f -`
    Crds,
    /// Roll probes out: one operator works in a cluster, others wait to take its place
    Run(Box<RunOptions>),
    /// Give a node's daemon the probes of this node, and report: one agent on each node
    Node(Box<NodeOptions>),
    /// Stop the rollout of a probe where it is
    Pause(ProbeArgument),
    /// Let the rollout of a probe continue
    Resume(ProbeArgument),
    /// Declare the present step of a rollout good
    Promote(ProbeArgument),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let done = start_logging(&args).and_then(|()| run(args.command));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("twinprobe-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: OperatorCommand) -> anyhow::Result<()> {
    // One thread is enough for an agent that waits nearly always.
    let mut runtime = match command {
        OperatorCommand::Run(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build()?;
    match command {
        OperatorCommand::Crds => {
            print!("{}", definitions_yaml()?);
            Ok(())
        }
        OperatorCommand::Run(options) => runtime.block_on(run_operator(*options)),
        OperatorCommand::Node(options) => runtime.block_on(run_node(*options)),
        OperatorCommand::Pause(probe) => runtime.block_on(pause(&probe, true)),
        OperatorCommand::Resume(probe) => runtime.block_on(pause(&probe, false)),
        OperatorCommand::Promote(probe) => runtime.block_on(promote(&probe)),
    }
}

fn start_logging(args: &Args) -> anyhow::Result<()> {
    let filter: Targets = match &args.log_level {
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
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match args.log_format {
        OperatorLogFormat::Text => subscriber.finish().with(filter).init(),
        OperatorLogFormat::Json => subscriber.json().finish().with(filter).init(),
    }
    Ok(())
}
