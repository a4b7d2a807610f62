//! `twinprobe convert`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use twinprobe_client::{Wishes, convert};

use crate::error::CommandError;
use crate::output::print;
use crate::output::view::View;

#[derive(Debug, Args)]
pub struct Convert {
    /// JSON of Polycube dynmon or DeChainy; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Name of the probe, where the file has one only
    #[arg(long)]
    name: Option<String>,
    /// Use this interface instead of the one in the file
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// Form of the configurations
    #[arg(short, long, value_enum, default_value_t = View::Json)]
    output: View,
}

impl Convert {
    /// Prints the configurations as `twinprobe apply` reads them, and on stderr what was left out.
    pub fn run(self) -> Result<(), CommandError> {
        let stdin = self.file.as_os_str() == "-";
        let text = if stdin { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(&self.file) };
        let text = text.map_err(|source| CommandError::Read { path: self.file.clone(), source })?;
        let wishes = Wishes { name: self.name, interface: self.interface };
        let converted = convert(&text, &wishes).map_err(CommandError::Convert)?;
        for note in &converted.notes {
            print::complain(&format!("note: {note}"));
        }
        let probes = match &converted.probes[..] {
            [one] => one.clone(),
            several => Value::Array(several.to_vec()),
        };
        self.output.show(&probes, |_| format!("{probes:#}"))
    }
}
