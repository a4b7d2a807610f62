//! Names of nodes and probes in paths and subjects.

#![allow(dead_code, reason = "receivers of samples have no paths")]

/// Encodes a name as one part of a path: characters with another meaning there become `%XX`.
pub fn part(name: &str) -> String {
    let is_first_dot = name.starts_with('.');
    let mut encoded = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric()
            || b"_-".contains(&byte)
            || byte == b'.' && !(at == 0 && is_first_dot);
        if is_plain {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_part() {
        assert_eq!(
            (part(".."), part("a b/c")),
            ("%2E.".into(), "a%20b%2Fc".into())
        );
        assert_eq!(part("gw-1.example_2"), "gw-1.example_2");
    }
}
