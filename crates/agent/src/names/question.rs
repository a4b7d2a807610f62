//! The parameters of a request for names.

use std::net::IpAddr;

use twinprobe_api::AskedPort;

/// The most addresses in a request, and the most ports.
pub const MOST: usize = 256;

/// The addresses and ports of a request, each of them once, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameQuestion {
    pub addresses: Vec<IpAddr>,
    pub ports: Vec<AskedPort>,
}

impl NameQuestion {
    /// Reads the parameters of a request. An error names the parameter and its possible values.
    pub fn parse(pairs: Vec<(String, String)>) -> Result<Self, String> {
        let mut question = Self::default();
        for what in ["address", "port"] {
            let given = pairs.iter().filter(|(name, _)| name == what).count();
            if given > MOST {
                return Err(format!(
                    "{what} is given {given} times; the limit is {MOST}"
                ));
            }
        }
        for (name, text) in pairs {
            match &*name {
                "address" => {
                    let address: IpAddr = text.parse().map_err(|_| {
                        format!(
                            "address={text} is not an address such as 192.0.2.1 and 2001:db8::1"
                        )
                    })?;
                    add(&mut question.addresses, address.to_canonical());
                }
                "port" => {
                    let port = text
                        .parse::<AskedPort>()
                        .map_err(|rule| format!("port={text} is not a port: {rule}"))?;
                    add(&mut question.ports, port);
                }
                _ => {
                    return Err(format!(
                        "there is no parameter {name}; there are address and port"
                    ));
                }
            }
        }
        if question == Self::default() {
            return Err(
                "address or port is missing: give the addresses and ports whose names you want"
                    .to_owned(),
            );
        }
        Ok(question)
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NameQuestion, String> {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        NameQuestion::parse(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    #[test]
    fn each_address_and_port_is_asked_for_once() {
        let question = parse(
            "address=192.0.2.1&address=::ffff:192.0.2.1&address=2001:db8::1&port=53&port=udp/53&port=53",
        )
        .unwrap();
        assert_eq!((question.addresses.len(), question.ports.len()), (2, 2));
    }

    #[test]
    fn what_is_not_possible_is_named() {
        for (text, expected) in [
            ("", "address or port is missing"),
            ("address=db", "address=db is not an address"),
            ("port=70000", "port=70000 is not a port: "),
            ("name=x", "there is no parameter name"),
        ] {
            assert!(parse(text).unwrap_err().contains(expected), "{text}");
        }
        let many: Vec<String> = (0..=MOST).map(|port| format!("port={port}")).collect();
        assert!(
            parse(&many.join("&"))
                .unwrap_err()
                .contains("port is given 257 times; the limit is 256")
        );
    }
}
