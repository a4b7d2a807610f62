//! `twinprobe names`.

use std::net::IpAddr;

use clap::Args;
use twinprobe_api::{AskedPort, FoundName, NameList, NameOrigin};

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::view::ViewOption;

/// Shows the names of addresses and ports that the daemon finds. Its operator chooses the kinds:
/// `serve --names`.
#[derive(Debug, Args)]
pub struct NamesCommand {
    /// Addresses, and ports as 443 or udp/53; at most 256 of each
    #[arg(value_name = "ADDRESS|PORT", required = true, value_parser = Asked::parse)]
    of: Vec<Asked>,
    #[command(flatten)]
    view: ViewOption,
}

/// The address or port whose name is requested.
#[derive(Clone, Debug)]
enum Asked {
    Address(IpAddr),
    Port(AskedPort),
}

impl Asked {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let wrong = |rule| format!("it is neither an address nor a port: {rule}");
        text.parse().map(Self::Port).map_err(wrong)
    }
}

impl NamesCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let (mut addresses, mut ports) = (Vec::new(), Vec::new());
        for asked in self.of {
            match asked {
                Asked::Address(address) => addresses.push(address.to_string()),
                Asked::Port(port) => ports.push(port.to_string()),
            }
        }
        let answer = session.fleet.one()?.names(&addresses, &ports).await?;
        let list = answer.read()?;
        self.view
            .output
            .show(&print::value(&answer)?, |screen| render(&list, screen))
    }
}

fn render(list: &NameList, screen: Screen) -> String {
    if list.kinds.is_empty() {
        return format!("{}\n", CommandError::NoNames);
    }
    let mut table = TextTable::default();
    let mut show = |of: &str, names: &[FoundName], pending: bool| {
        let mut line = |name: &str, from: &str| {
            let mut row = table.row();
            row.text("OF", of);
            row.text("NAME", name);
            row.text("FROM", from);
        };
        names
            .iter()
            .for_each(|found| line(&found.name, found.from.name()));
        if pending {
            line("...", NameOrigin::Dns.name());
        } else if names.is_empty() {
            line("-", "");
        }
    };
    list.addresses
        .iter()
        .for_each(|of| show(&of.address.to_string(), &of.names, of.pending));
    list.ports
        .iter()
        .for_each(|of| show(&of.port, &of.names, false));
    table.render(screen)
}

#[cfg(test)]
mod tests {
    use twinprobe_api::{AddressNames, PortNames};

    use super::*;

    #[test]
    fn each_name_has_its_origin() {
        let name = |name: &str, from| FoundName {
            name: name.to_owned(),
            from,
        };
        let address = |text: &str, names, pending| AddressNames {
            address: text.parse().unwrap(),
            names,
            pending,
        };
        let mut list = NameList {
            kinds: vec![NameOrigin::Hosts, NameOrigin::Dns],
            addresses: vec![
                address(
                    "192.0.2.1",
                    vec![
                        name("db", NameOrigin::Hosts),
                        name("db.example", NameOrigin::Dns),
                    ],
                    false,
                ),
                address("192.0.2.2", Vec::new(), true),
                address("2001:db8::1", Vec::new(), false),
            ],
            ports: vec![PortNames {
                port: "443".into(),
                names: vec![name("https", NameOrigin::Services)],
            }],
        };
        let screen = Screen {
            width: 100,
            colour: false,
            wide: false,
        };
        let expected = "\
OF           NAME        FROM
192.0.2.1    db          hosts
192.0.2.1    db.example  dns
192.0.2.2    ...         dns
2001:db8::1  -
443          https       services
";
        assert_eq!(render(&list, screen), expected);
        list.kinds.clear();
        assert!(render(&list, screen).contains("--names hosts"));
    }
}
