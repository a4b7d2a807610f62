//! An interface by its name, or all whose names match a pattern.

use glob::Pattern;

/// One element of `interfaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePattern {
    text: String,
    /// `None`: a name.
    pattern: Option<Pattern>,
}

impl InterfacePattern {
    /// `text` must be a name or a pattern as validation leaves it.
    pub fn new(text: &str) -> Result<Self, glob::PatternError> {
        let pattern = is_pattern(text).then(|| Pattern::new(text)).transpose()?;
        Ok(Self { text: text.to_owned(), pattern })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it means present and future interfaces rather than a certain one.
    pub fn is_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    pub fn matches(&self, name: &str) -> bool {
        self.pattern.as_ref().map_or(self.text == name, |pattern| pattern.matches(name))
    }
}

/// Whether `text` has one of the characters that make it more than a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let matches = |pattern: &str, name: &str| InterfacePattern::new(pattern).unwrap().matches(name);
        for (pattern, yes, no) in [
            ("eth0", &["eth0"][..], &["eth", "eth00", "ETH0"][..]),
            ("veth*", &["veth", "veth0", "veth1234"], &["eth0", "aveth0", "Veth0"]),
            ("*", &["lo", ".hidden", "a.100"], &[]),
            ("eth?", &["eth0"], &["eth", "eth10"]),
            ("en[op]*", &["eno1", "enp0s3"], &["ens1"]),
            ("eth[!0-3]", &["eth4"], &["eth0", "eth3"]),
            ("a[[]b", &["a[b"], &["ab"]),
            ("*.*", &["eth0.100"], &["eth0"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = InterfacePattern::new(&"*a".repeat(32)).unwrap();
        assert!(!pattern.matches("aaaaaaaaaaaaaaa"));
    }
}
