//! `twinprobe convert`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use twinprobe_api::ConfigDocument;
use twinprobe_client::{Wishes, convert};
use twinprobe_config::ProbeConfig;

use crate::error::CommandError;
use crate::files::sources::Sources;
use crate::output::print;
use crate::output::view::OutputView;

#[derive(Debug, Args)]
pub struct Convert {
    /// JSON of Polycube dynmon or DeChainy; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Name of the probe, if the file has only one
    #[arg(long)]
    name: Option<String>,
    /// Use this interface instead of the one in the file
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// Form of the configurations
    #[arg(short, long, value_enum, default_value_t = OutputView::Json)]
    output: OutputView,
}

impl Convert {
    /// Prints the configurations for `twinprobe apply`, and on stderr the fields that were left
    /// out.
    pub fn run(self) -> Result<(), CommandError> {
        let stdin = self.file.as_os_str() == "-";
        let text = if stdin {
            io::read_to_string(io::stdin())
        } else {
            std::fs::read_to_string(&self.file)
        };
        let text = text.map_err(|source| CommandError::Read {
            path: self.file.clone(),
            source,
        })?;
        let wishes = Wishes {
            name: self.name,
            interface: self.interface,
        };
        let converted = convert(&text, &wishes).map_err(CommandError::Convert)?;
        for note in &converted.notes {
            print::complain(&format!("note: {note}"));
        }
        converted.probes.iter().try_for_each(check)?;
        let probes = match &converted.probes[..] {
            [one] => one.clone(),
            several => Value::Array(several.to_vec()),
        };
        self.output.show(&probes, |_| format!("{probes:#}"))
    }
}

/// Refuses a configuration that `apply` would refuse.
fn check(probe: &Value) -> Result<(), CommandError> {
    let document: ConfigDocument =
        serde_json::from_value(probe.clone()).map_err(io::Error::from)?;
    let name = document.name.as_deref().unwrap_or_default();
    let refused = |rejection| CommandError::Rejected {
        rejection,
        sources: Box::new(Sources::inside(&document)),
    };
    ProbeConfig::validate(name, &document)
        .map(drop)
        .map_err(refused)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_apply_would_refuse_is_refused() {
        let metric = |name: &str| json!({ "name": name, "map-name": "A" });
        let converted = |metric: Value| {
            let path = json!({ "name": "p", "code": "int a;", "metric-configs": [metric] });
            let wishes = Wishes {
                interface: Some("eth0".to_owned()),
                name: None,
            };
            convert(&json!({ "ingress-path": path }).to_string(), &wishes)
                .unwrap()
                .probes
                .remove(0)
        };
        assert!(check(&converted(metric("seen"))).is_ok());
        let refused = check(&converted(metric("no name"))).unwrap_err();
        let CommandError::Rejected { rejection, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(
            rejection.findings[0].field.as_deref(),
            Some("ingress.metrics[0].name")
        );
    }
}
