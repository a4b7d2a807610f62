//! Places and networks of addresses from MMDB files, the format of GeoIP and ASN databases. The operator names the
//! files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::Reader;
use serde::Deserialize;

/// The largest file that is read, in bytes. Its content stays in memory.
const LARGEST: u64 = 256 << 20;

/// An MMDB file.
pub struct PlaceFile {
    path: PathBuf,
    reader: Reader<Vec<u8>>,
}

impl std::fmt::Debug for PlaceFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PlaceFile").field("path", &self.path).finish_non_exhaustive()
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
    /// Reads a file. An error says what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, String> {
        let wrong = |error: String| format!("the file {} of --names-mmdb: {error}", path.display());
        let length = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if length > LARGEST {
            return Err(wrong(format!("it has {length} bytes; {LARGEST} are possible")));
        }
        let reader =
            Reader::open_readfile(path).map_err(|error| wrong(format!("it is not an MMDB file: {error}")))?;
        Ok(Self { path: path.to_owned(), reader })
    }

    /// Returns what the file knows of an address: a city and its country, or a network.
    pub fn names(&self, address: IpAddr) -> Vec<String> {
        let found = self.reader.lookup(address).and_then(|found| found.decode::<PlaceRecord>());
        found.ok().flatten().map(names).unwrap_or_default()
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
