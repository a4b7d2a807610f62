//! `twinprobe`: the daemon and its client in one binary.

#![deny(unsafe_code)]

mod api;
mod cli;
mod client;
mod compiler;
mod config;
mod engine;
mod serve;
mod store;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command, LogFormat};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(cli.log_format);
    twinprobe_kernel::memory::return_freed_memory();
    let result = match runtime(&cli.command) {
        Ok(runtime) => {
            let result = runtime.block_on(run(cli));
            // Not waiting for threads that the kernel does not give back.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("twinprobe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(options) => serve::serve(options).await,
        Command::Client(command) => Ok(client::run(command, &cli.server).await?),
    }
}

/// Kernel work runs on blocking threads; two workers are enough for requests, one for a client.
fn runtime(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    match command {
        Command::Serve(_) => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
        }
        Command::Client(_) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
    }
}

/// Logs go to stderr; `RUST_LOG` chooses what.
fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Who reads the log may go; a line that can't be written is no reason to fail a request.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
