//! `twinprobe doctor`.

use std::path::PathBuf;

use clap::Args;
use twinprobe_compiler::{CompilerOptions, Toolchain};
use twinprobe_ebpf_common::finding::with_causes;

use twinprobe_cli::output::screen::{ERROR, GOOD, HEADING, Screen, WARNING};
use twinprobe_cli::output::view::ViewOption;
use twinprobe_cli::{CommandError, Session};

use crate::local::check::{Check, CheckVerdict};
use crate::local::host::{self, MachineFiles};
use crate::local::store;
use twinprobe_kernel::{TcAhead, XdpNeighbour};

/// The most attachments that `doctor` names because their numbers differ from those on the wire.
const PROBES: usize = 4;

/// Shows what this kernel, the privileges of this user, file systems and limits allow, and what to
/// change. Fails if the daemon could not run here.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Examine the store in this state directory as well: every page and every window
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    view: ViewOption,
}

impl Doctor {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let mut checks = host::checks(&MachineFiles::default());
        checks.extend(host::maps());
        checks.extend(neighbours());
        checks.extend(ahead());
        checks.push(compiler());
        checks.push(daemon(session).await);
        checks.extend(wire(session).await);
        checks.extend(self.state_dir.as_deref().map(store::examine));
        self.view
            .output
            .show(&checks, |screen| render(&checks, screen))?;
        let failed = checks
            .iter()
            .filter(|check| check.verdict == CheckVerdict::Failed)
            .count();
        if failed == 0 {
            Ok(())
        } else {
            Err(CommandError::Unfit {
                failed,
                total: checks.len(),
            })
        }
    }
}

/// Names the owner of each occupied XDP hook; `None` if there is none.
fn neighbours() -> Option<Check> {
    let found = twinprobe_kernel::neighbours().map_err(|error| {
        let advice = "as root, in the network namespace of the interfaces";
        Check::warning(
            "xdp",
            format!("the programs at interfaces can't be listed: {error}"),
            advice,
        )
    });
    found.map_or_else(Some, |found| owners(&found))
}

fn owners(found: &[XdpNeighbour]) -> Option<Check> {
    let said: Vec<String> = found
        .iter()
        .map(|at| format!("{}: {}", at.interface, at.described))
        .collect();
    let said = said.join("; ");
    let foreign: Vec<&str> = found
        .iter()
        .filter(|at| !at.is_own)
        .map(|at| at.interface.as_str())
        .collect();
    if foreign.is_empty() {
        return (!found.is_empty()).then(|| Check::ok("xdp", said));
    }
    let advice = format!(
        "a hook takes one owner: for probes on {} use hook tc, or let the owner unload its program; serve --xdp-loader joins \
         dispatchers of libxdp (docs/operations.md)",
        foreign.join(", ")
    );
    Some(Check::warning("xdp", said, advice))
}

/// Names the TC programs of others that run before probes; `None` if there are none. Without the
/// right to list them, the check of XDP has said so.
fn ahead() -> Option<Check> {
    twinprobe_kernel::tc_ahead()
        .ok()
        .and_then(|found| before_probes(&found))
}

fn before_probes(found: &[TcAhead]) -> Option<Check> {
    let said = found.iter().map(
        |TcAhead {
             interface,
             direction,
             name,
             id,
             pin,
         }| {
            let pin = pin
                .as_ref()
                .map(|pin| format!(", pinned as {}", pin.display()))
                .unwrap_or_default();
            format!("{interface} {direction}: {name} (id {id}{pin})")
        },
    );
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| {
        Check::warning(
            "tc",
            format!("programs of others run before probes: {}", said.join("; ")),
            "probes do not see packets that these programs end (TC_ACT_OK ends them, too): deploy the probes with position: \
             first; if they have it, the others came later: delete the probes and deploy them again; for probes that use clsact, start \
             the daemon with --tc-attach auto, because all TCX programs run before clsact",
        )
    })
}

fn compiler() -> Check {
    match Toolchain::discover(CompilerOptions {
        allow_unconfined_compiler: false,
    })
    .known()
    {
        Ok(compiler) => Check::ok(
            "compiler",
            format!("{}, {}", compiler.clang.display(), compiler.version),
        ),
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
        Ok(_) => Check::ok(
            "daemon",
            format!("answers at {}", session.fleet.nodes()[0].name),
        ),
        Err(error) => Check::warning(
            "daemon",
            with_causes(&error),
            "start it: `systemctl start twinprobe`, or `twinprobe serve` as root",
        ),
    }
}

/// Returns the probes of the daemon whose numbers differ from those on the wire, and why; `None` if
/// there are none, or no daemon.
async fn wire(session: &Session) -> Option<Check> {
    let probes = session
        .fleet
        .one()
        .ok()?
        .probes()
        .await
        .ok()?
        .read()
        .ok()?
        .probes;
    let said = probes.iter().flat_map(|probe| {
        let places = probe.interfaces.iter();
        places.filter_map(|at| {
            Some(format!(
                "{} on {}: {}",
                probe.name,
                at.interface,
                at.approximate.as_ref()?
            ))
        })
    });
    let mut said: Vec<String> = said.collect();
    let more = said.len().saturating_sub(PROBES);
    said.truncate(PROBES);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    let advice =
        "follow the advice in these texts, or accept approximate numbers (docs/exactness.md)";
    (!said.is_empty()).then(|| {
        Check::warning(
            "wire",
            format!("numbers are approximate: {}", said.join("; ")),
            advice,
        )
    })
}

fn render(checks: &[Check], screen: Screen) -> String {
    let widest = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for check in checks {
        let (word, style) = match check.verdict {
            CheckVerdict::Ok => ("ok     ", GOOD),
            CheckVerdict::Warning => ("warning", WARNING),
            CheckVerdict::Failed => ("failed ", ERROR),
        };
        let name = screen.paint(HEADING, &format!("{:<widest$}", check.name));
        text.push_str(&format!(
            "{}  {name}  {}\n",
            screen.paint(style, word),
            check.found
        ));
        if let Some(change) = &check.change {
            text.push_str(&format!(
                "{:indent$}-> {change}\n",
                "",
                indent = widest + 11
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_hooks_are_named_and_others_get_advice() {
        let at = |interface: &str, described: &str, is_own| XdpNeighbour {
            interface: interface.to_owned(),
            described: described.to_owned(),
            is_own,
        };
        assert_eq!(owners(&[]), None);
        let own = at("eth0", "a dispatcher of twinprobe", true);
        let check = owners(std::slice::from_ref(&own)).unwrap();
        assert_eq!(
            (check.verdict, &*check.found),
            (CheckVerdict::Ok, "eth0: a dispatcher of twinprobe")
        );
        let check = owners(&[own, at("eth1", "a dispatcher of libxdp", false)]).unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert_eq!(
            check.found,
            "eth0: a dispatcher of twinprobe; eth1: a dispatcher of libxdp"
        );
        assert!(
            check
                .change
                .unwrap()
                .contains("for probes on eth1 use hook tc")
        );
    }

    #[test]
    fn programs_before_probes_are_named() {
        assert_eq!(before_probes(&[]), None);
        let check = before_probes(&[TcAhead {
            interface: "eth0".to_owned(),
            direction: twinprobe_ebpf_common::Direction::Ingress,
            name: "cls".to_owned(),
            id: 5,
            pin: Some("/run/bpfman/fs/prog_5".into()),
        }])
        .unwrap();
        let expected = "programs of others run before probes: eth0 ingress: cls (id 5, pinned as /run/bpfman/fs/prog_5)";
        assert_eq!(
            (check.verdict, &*check.found),
            (CheckVerdict::Warning, expected)
        );
        assert!(check.change.unwrap().contains("position: first"));
    }

    #[test]
    fn what_to_change_stands_below_what_was_found() {
        let checks = [
            Check::ok("kernel", "6.18.0"),
            Check::failed("jit", "off", "sysctl -w net.core.bpf_jit_enable=1"),
        ];
        assert_eq!(
            render(
                &checks,
                Screen {
                    width: 80,
                    colour: false,
                    wide: false
                }
            ),
            "ok       kernel  6.18.0\nfailed   jit     off\n                 -> sysctl -w net.core.bpf_jit_enable=1\n"
        );
    }
}
