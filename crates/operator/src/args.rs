//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::objects::definitions::definitions_yaml;

#[derive(Parser)]
#[command(name = "twinprobe-operator", version, about = "Probes as Kubernetes objects")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the definitions of the kinds, for `kubectl apply -f -`
    Crds,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let Args { command: Command::Crds } = Args::parse();
    match definitions_yaml() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("twinprobe-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}
