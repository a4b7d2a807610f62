//! Places and networks of addresses from MMDB files (the format of GeoIP and ASN databases) that
//! the operator names.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use maxminddb::Reader;
use serde::Deserialize;

/// The largest file in bytes. The content of the file stays in memory.
const LARGEST: u64 = 256 << 20;

/// An MMDB file.
pub struct PlaceFile {
    path: PathBuf,
    reader: Reader<Vec<u8>>,
}

impl std::fmt::Debug for PlaceFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PlaceFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The fields about an address in the usual kinds of databases.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PlaceRecord {
    city: NamedPlace,
    country: NamedPlace,
    registered_country: NamedPlace,
    autonomous_system_number: Option<u32>,
    autonomous_system_organization: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedPlace {
    iso_code: Option<String>,
    names: NamesByLanguage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamesByLanguage {
    en: Option<String>,
}

impl PlaceFile {
    /// Reads a file. An error names the fault.
    pub fn open(path: &Path) -> Result<Self, String> {
        let wrong = |error: String| format!("the file {} of --names-mmdb: {error}", path.display());
        let length = std::fs::metadata(path)
            .map_err(|error| wrong(error.to_string()))?
            .len();
        if length > LARGEST {
            return Err(wrong(format!(
                "it has {length} bytes; the limit is {LARGEST}"
            )));
        }
        let reader = catch_unwind(AssertUnwindSafe(|| Reader::open_readfile(path)))
            .map_err(|_| wrong("it is damaged".to_owned()))?
            .map_err(|error| wrong(format!("it is not an MMDB file: {error}")))?;
        Ok(Self {
            path: path.to_owned(),
            reader,
        })
    }

    /// Returns the entry in the file for an address: a city and its country, or a network.
    pub fn names(&self, address: IpAddr) -> Vec<String> {
        let found = || {
            self.reader
                .lookup(address)
                .and_then(|found| found.decode::<PlaceRecord>())
        };
        // A damaged file may lead the reader to a panic. The address has no name then.
        let found = catch_unwind(AssertUnwindSafe(found))
            .ok()
            .and_then(Result::ok);
        found.flatten().map(names).unwrap_or_default()
    }
}

fn names(record: PlaceRecord) -> Vec<String> {
    let country = [record.country, record.registered_country]
        .into_iter()
        .find_map(|country| country.names.en.or(country.iso_code));
    let parts: Vec<String> = record.city.names.en.into_iter().chain(country).collect();
    let place = (!parts.is_empty()).then(|| parts.join(", "));
    let network = record.autonomous_system_number.map(|number| {
        let organization = record.autonomous_system_organization.unwrap_or_default();
        format!("AS{number} {organization}").trim_end().to_owned()
    });
    place.into_iter().chain(network).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use serde_json::{Value, json};

    use super::*;

    /// Encodes a value in the form of MMDB files: its type and size, then its bytes.
    fn written(value: &Value) -> Vec<u8> {
        // A size of 29 or more takes a further byte.
        let head = |kind: u8, size: usize| {
            let (short, long) = if size < 29 {
                (size as u8, vec![])
            } else {
                (29, vec![(size - 29) as u8])
            };
            let control = if kind < 8 {
                vec![kind << 5 | short]
            } else {
                vec![short, kind - 7]
            };
            [control, long].concat()
        };
        match value {
            Value::String(text) => [head(2, text.len()), text.clone().into_bytes()].concat(),
            Value::Number(number) => {
                let bytes = u32::try_from(number.as_u64().unwrap())
                    .unwrap()
                    .to_be_bytes();
                [head(6, 4), bytes.to_vec()].concat()
            }
            Value::Array(items) => [
                head(11, items.len()),
                items.iter().flat_map(written).collect(),
            ]
            .concat(),
            Value::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| [written(&json!(name)), written(value)].concat());
                [head(7, members.len()), members.flatten().collect()].concat()
            }
            other => panic!("{other}"),
        }
    }

    /// Encodes a file that has this record for one network. The tree in the file has a node for
    /// each bit of the prefix.
    fn file(network: IpAddr, prefix: u32, record: &Value) -> tempfile::NamedTempFile {
        let address = match network {
            IpAddr::V4(address) => address.to_ipv6_compatible(),
            IpAddr::V6(address) => address,
        };
        let prefix = if network.is_ipv4() {
            prefix + 96
        } else {
            prefix
        };
        let bits = u128::from(address);
        let mut bytes = Vec::new();
        for at in 0..prefix {
            let next = if at + 1 == prefix {
                prefix + 16
            } else {
                at + 1
            };
            let is_one = bits >> (127 - at) & 1 == 1;
            let records = if is_one {
                [prefix, next]
            } else {
                [next, prefix]
            };
            bytes.extend(
                records
                    .iter()
                    .flat_map(|record| record.to_be_bytes()[1..].to_vec()),
            );
        }
        bytes.extend([0; 16]);
        bytes.extend(written(record));
        bytes.extend(b"\xab\xcd\xefMaxMind.com");
        bytes.extend(written(&json!({
            "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": 1_764_000_000,
            "database_type": "Test", "description": { "en": "A test" }, "ip_version": 6, "languages": ["en"],
            "node_count": prefix, "record_size": 24,
        })));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn named(network: &str, prefix: u32, record: &Value, addresses: &[&str]) -> Vec<Vec<String>> {
        let file = file(network.parse().unwrap(), prefix, record);
        let places = PlaceFile::open(file.path()).unwrap();
        addresses
            .iter()
            .map(|address| places.names(address.parse().unwrap()))
            .collect()
    }

    #[test]
    fn an_address_has_the_city_or_the_network_of_its_file() {
        let city = json!({
            "city": { "names": { "de": "Wien", "en": "Vienna" } },
            "country": { "iso_code": "AT", "names": { "en": "Austria" } },
        });
        let of_city = named(
            "192.0.2.0",
            24,
            &city,
            &["192.0.2.7", "192.0.3.7", "2001:db8::1"],
        );
        assert_eq!(
            of_city,
            [vec!["Vienna, Austria".to_owned()], vec![], vec![]]
        );

        let network = json!({ "autonomous_system_number": 64_496, "autonomous_system_organization": "Example" });
        let of_network = named("2001:db8::", 32, &network, &["2001:db8::1", "192.0.2.7"]);
        assert_eq!(of_network, [vec!["AS64496 Example".to_owned()], vec![]]);

        let registered = json!({ "registered_country": { "iso_code": "NZ" } });
        assert_eq!(
            named("192.0.2.0", 24, &registered, &["192.0.2.7"]),
            [["NZ"]]
        );
        assert_eq!(
            named(
                "192.0.2.0",
                24,
                &json!({ "other": "field" }),
                &["192.0.2.7"]
            ),
            [vec![""; 0]]
        );
    }

    #[test]
    fn damaged_files_are_refused_or_know_nothing() {
        let record = json!({ "country": { "names": { "en": "Austria" } } });
        let whole = std::fs::read(file("192.0.2.0".parse().unwrap(), 24, &record).path()).unwrap();
        let damaged = tempfile::NamedTempFile::new().unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            for bytes in [&bytes[..], &whole[..at]] {
                std::fs::write(damaged.path(), bytes).unwrap();
                if let Ok(places) = PlaceFile::open(damaged.path()) {
                    places.names("192.0.2.7".parse().unwrap());
                    places.names(IpAddr::V6(Ipv6Addr::LOCALHOST));
                }
            }
        }
        std::fs::write(damaged.path(), b"no database").unwrap();
        let error = PlaceFile::open(damaged.path()).unwrap_err();
        assert!(
            error.contains("--names-mmdb") && error.contains("not an MMDB file"),
            "{error}"
        );
    }
}
