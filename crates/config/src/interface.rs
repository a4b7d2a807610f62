//! An interface given by its name, all interfaces whose names match a pattern, or the interfaces of
//! pods.

use glob::Pattern;

use crate::pods::PodSelector;

/// One element of `interfaces`, or the pods in `pods`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePattern {
    /// The name or pattern in the configuration, or words for the pods.
    pub text: String,
    /// The parsed pattern; `None` if `text` is not a pattern.
    pattern: Option<Pattern>,
    pods: Option<PodSelector>,
}

impl InterfacePattern {
    /// Parses `text`, which must be a name or a pattern that obeys the rule of names.
    pub fn new(text: &str) -> Result<Self, glob::PatternError> {
        let pattern = is_pattern(text).then(|| Pattern::new(text)).transpose()?;
        Ok(Self {
            text: text.to_owned(),
            pattern,
            pods: None,
        })
    }

    /// Returns the element for all interfaces of these pods.
    pub fn of_pods(pods: PodSelector) -> Self {
        Self {
            text: pods.words(),
            pattern: None,
            pods: Some(pods),
        }
    }

    /// Returns the pods to which the interfaces lead; `None` if their names decide.
    pub const fn pods(&self) -> Option<&PodSelector> {
        self.pods.as_ref()
    }

    /// Tells whether the element means all present and future interfaces that match, and not a
    /// single one.
    pub fn is_pattern(&self) -> bool {
        self.pattern.is_some() || self.pods.is_some()
    }

    /// Tells whether the element means this interface. It never does if it selects pods.
    pub fn matches(&self, name: &str) -> bool {
        self.pods.is_none()
            && self
                .pattern
                .as_ref()
                .map_or(self.text == name, |pattern| pattern.matches(name))
    }
}

/// Tells whether `text` has one of the characters that make it a pattern.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let matches =
            |pattern: &str, name: &str| InterfacePattern::new(pattern).unwrap().matches(name);
        for (pattern, yes, no) in [
            ("eth0", &["eth0"][..], &["eth", "eth00", "ETH0"][..]),
            (
                "veth*",
                &["veth", "veth0", "veth1234"],
                &["eth0", "aveth0", "Veth0"],
            ),
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
