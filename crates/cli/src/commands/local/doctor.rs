//! `twinprobe doctor`.

use std::path::PathBuf;

use clap::Args;
use twinprobe_compiler::{CompilerOptions, Toolchain};
use twinprobe_ebpf_common::finding::with_causes;

use crate::commands::local::check::{Check, Verdict};
use crate::commands::local::host::{self, Host};
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::screen::{ERROR, GOOD, HEADING, Screen, WARNING};
use crate::output::view::ViewOption;

/// The most attachments that are named because their numbers are not those of the wire.
const PROBES: usize = 4;

/// Shows what this kernel, the privileges of this user, file systems and limits allow, and what to change. Fails if the
/// daemon could not run here.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Examine the store in this state directory as well: every page and every window
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    #[command(flatten)]
    view: ViewOption,
    /// Checks of what this crate does not know.
    #[arg(skip)]
    pub more: Vec<Check>,
}

impl Doctor {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let mut checks = host::checks(&Host::default());
        checks.extend(host::maps());
        checks.push(compiler());
        checks.push(daemon(session).await);
        checks.extend(wire(session).await);
        checks.extend(self.more);
        self.view.output.show(&checks, |screen| render(&checks, screen))?;
        let failed = checks.iter().filter(|check| check.verdict == Verdict::Failed).count();
        if failed == 0 { Ok(()) } else { Err(CommandError::Unfit { failed, total: checks.len() }) }
    }
}

fn compiler() -> Check {
    match Toolchain::discover(CompilerOptions { allow_unconfined_compiler: false }).known() {
        Ok(compiler) => Check::ok("compiler", format!("{}, {}", compiler.clang.display(), compiler.version)),
        Err(error) => Check::warning(
            "compiler",
            error,
            "on Debian: apt install clang libbpf-dev linux-libc-dev; or compile elsewhere with `twinprobe build`",
        ),
    }
}

/// Asks the daemon whether it runs.
async fn daemon(session: &Session) -> Check {
    let Ok(client) = session.fleet.one() else {
        return Check::warning("daemon", "several servers are given", "give one --server");
    };
    match client.ready().await {
        Ok(_) => Check::ok("daemon", format!("answers at {}", session.fleet.nodes()[0].name)),
        Err(error) => Check::warning(
            "daemon",
            with_causes(&error),
            "start it: `systemctl start twinprobe`, or `twinprobe serve` as root",
        ),
    }
}

/// Returns the probes of the daemon whose numbers are not those of the wire, and why; `None` if there are none, or no daemon.
async fn wire(session: &Session) -> Option<Check> {
    let probes = session.fleet.one().ok()?.probes().await.ok()?.read().ok()?.probes;
    let said = probes.iter().flat_map(|probe| {
        let places = probe.interfaces.iter();
        places.filter_map(|at| {
            Some(format!("{} on {}: {}", probe.name, at.interface, at.approximate.as_ref()?))
        })
    });
    let mut said: Vec<String> = said.collect();
    let more = said.len().saturating_sub(PROBES);
    said.truncate(PROBES);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    let advice = "do what the texts say, or take the numbers for what they are (docs/exactness.md)";
    (!said.is_empty())
        .then(|| Check::warning("wire", format!("numbers are approximate: {}", said.join("; ")), advice))
}

fn render(checks: &[Check], screen: Screen) -> String {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for check in checks {
        let (word, style) = match check.verdict {
            Verdict::Ok => ("ok     ", GOOD),
            Verdict::Warning => ("warning", WARNING),
            Verdict::Failed => ("failed ", ERROR),
        };
        let name = screen.paint(HEADING, &format!("{:<widest$}", check.name));
        text.push_str(&format!("{}  {name}  {}\n", screen.paint(style, word), check.found));
        if let Some(change) = &check.change {
            text.push_str(&format!("{:indent$}-> {change}\n", "", indent = widest + 11));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_change_stands_below_what_was_found() {
        let checks = [
            Check::ok("kernel", "6.18.0"),
            Check::failed("jit", "off", "sysctl -w net.core.bpf_jit_enable=1"),
        ];
        assert_eq!(
            render(&checks, Screen { width: 80, colour: false, wide: false }),
            "ok       kernel  6.18.0\nfailed   jit     off\n                 -> sysctl -w net.core.bpf_jit_enable=1\n"
        );
    }
}
