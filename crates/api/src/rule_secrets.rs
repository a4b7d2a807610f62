//! Passwords in the URLs of notifications. Readers see the URLs without them.

use crate::rule::RuleAction;

/// The text in the place of a password.
const MASK: &str = "***";

/// Returns a URL without the password before its host.
pub fn masked_url(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    let Some((secret, host)) = url[start..end].rsplit_once('@') else {
        return url.to_owned();
    };
    // A user without a password may be a token.
    let user = secret
        .split_once(':')
        .map_or(String::new(), |(user, _)| format!("{user}:"));
    format!("{}{user}{MASK}@{host}{}", &url[..start], &url[end..])
}

impl RuleAction {
    /// Removes the password of a URL, for readers.
    #[must_use]
    pub fn masked(self) -> Self {
        match self {
            Self::Notify(url) => Self::Notify(masked_url(&url)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_no_password() {
        for (url, shown) in [
            ("https://host/a?b=c@d#e", "https://host/a?b=c@d#e"),
            (
                "https://user:secret@host:8080/a",
                "https://user:***@host:8080/a",
            ),
            ("https://user:se:cr@et@host?x", "https://user:***@host?x"),
            ("https://token@host", "https://***@host"),
            ("ftp://user:secret@host", "ftp://user:***@host"),
            ("user:secret@host/x", "user:***@host/x"),
            ("http://", "http://"),
            ("", ""),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }
}
