//! Identifiers of PostgreSQL.

use sha2::{Digest as _, Sha256};

/// The most bytes of an identifier; PostgreSQL cuts what is longer.
pub const LONGEST: usize = 63;
/// The hex digits that stand for what was cut.
const DIGITS: usize = 12;

/// Returns a name that PostgreSQL keeps as it is: where the name is too long, its beginning and a digest of all of it.
pub fn identifier(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let end = name.floor_char_boundary(LONGEST - DIGITS - 1);
    format!("{}~{}", &name[..end], &digest(name)[..DIGITS])
}

/// Returns a name in quotation marks, so that any name is one.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the names in quotation marks, with commas between them.
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(quoted).collect::<Vec<_>>().join(", ")
}

/// Returns the hex digits of SHA-256.
pub fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_what_tells_it_from_others() {
        assert_eq!(identifier("flow-features.ingress.flows"), "flow-features.ingress.flows");
        assert_eq!(identifier(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
        let (one, other) = (identifier(&"é".repeat(40)), identifier(&"é".repeat(41)));
        assert!(one != other && one.len() <= LONGEST && other.len() <= LONGEST, "{one} {other}");
        assert!(one.starts_with(&"é".repeat(25)), "{one}");
    }

    #[test]
    fn any_name_can_be_quoted() {
        assert_eq!(listed(["a\"; DROP TABLE b", "Ö.c"].into_iter()), "\"a\"\"; DROP TABLE b\", \"Ö.c\"");
    }
}
