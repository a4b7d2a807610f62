//! Names of tables and columns in databases.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

/// The most bytes of an identifier. PostgreSQL cuts longer names; other databases accept more.
pub const LONGEST: usize = 63;
/// The number of hex digits that replace the cut part.
const DIGITS: usize = 12;

/// The hex digits that tell tables of one metric apart.
const VARIANT: usize = 8;

/// The names of the columns that a table has already.
pub struct FreeNames(BTreeSet<String>);

/// Returns a name that databases keep unchanged: a long name becomes its beginning and a digest of
/// the whole name.
pub fn identifier(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let end = name.floor_char_boundary(LONGEST - DIGITS - 1);
    format!("{}~{}", &name[..end], &digest(name)[..DIGITS])
}

/// Returns the name of a table beside `name`, for columns of other types. `layout` contains their
/// types.
pub fn variant(name: &str, layout: &str) -> String {
    identifier(&format!("{name}~{}", &digest(layout)[..VARIANT]))
}

/// Returns a name in quotation marks, which make any text a valid name.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the names in quotation marks, with commas between them.
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(quoted).collect::<Vec<_>>().join(", ")
}

/// Returns the hex digits of SHA-256.
pub fn digest(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl FreeNames {
    pub fn new<'a>(taken: impl IntoIterator<Item = &'a str>) -> Self {
        Self(taken.into_iter().map(str::to_owned).collect())
    }

    /// Returns the name of a further column: with a number, if another column has the name.
    pub fn take(&mut self, name: &str) -> String {
        let (mut free, mut number) = (identifier(name), 2);
        while !self.0.insert(free.clone()) {
            free = identifier(&format!("{name}_{number}"));
            number += 1;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_what_tells_it_from_others() {
        assert_eq!(
            identifier("flow-features.ingress.flows"),
            "flow-features.ingress.flows"
        );
        assert_eq!(identifier(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
        let (one, other) = (identifier(&"é".repeat(40)), identifier(&"é".repeat(41)));
        assert!(
            one != other && one.len() <= LONGEST && other.len() <= LONGEST,
            "{one} {other}"
        );
        assert!(one.starts_with(&"é".repeat(25)), "{one}");
    }

    #[test]
    fn any_name_can_be_quoted() {
        assert_eq!(
            listed(["a\"; DROP TABLE b", "Ö.c"].into_iter()),
            "\"a\"\"; DROP TABLE b\", \"Ö.c\""
        );
    }
}
