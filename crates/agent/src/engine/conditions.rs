//! The conditions of a change: a client may demand that the probe has not changed since the
//! client's last look (RFC 9110, section 13.1). Conditions are checked in the probe's turn, so that
//! one of two clients with the same condition is refused. This module parses conditions itself: for
//! the ten lines of this comparison, the crate `headers` would add six other crates.

use crate::engine::error::EngineError;
use crate::store::record::StoredProbe;

/// The values of `If-Match` and `If-None-Match`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
}

/// Returns the tag of a probe's configuration. A probe that is created anew begins with the
/// revision 1 again, but at another time.
pub fn tag(revision: u64, created: &str) -> String {
    format!("\"{revision}-{created}\"")
}

impl Conditions {
    /// Refuses a change of a probe whose present state is `present`; `None` if the probe does not
    /// exist.
    pub fn check(&self, present: Option<&StoredProbe>) -> Result<(), EngineError> {
        self.check_tag(present.map(|stored| tag(stored.revision, &stored.created)))
    }

    /// Checks the conditions against the present tag.
    pub fn check_tag(&self, present: Option<String>) -> Result<(), EngineError> {
        let has = |tags: &str, strip: &str| match (tags.trim(), &present) {
            (_, None) => false,
            ("*", Some(_)) => true,
            (tags, Some(present)) => tags
                .split(',')
                .any(|tag| tag.trim().trim_start_matches(strip) == present),
        };
        // A weak tag never matches where `If-Match` demands an exact match.
        let matches = self.if_match.as_ref().is_none_or(|tags| has(tags, ""));
        let matches_none = self
            .if_none_match
            .as_ref()
            .is_none_or(|tags| !has(tags, "W/"));
        if matches && matches_none {
            return Ok(());
        }
        Err(EngineError::Precondition(match present {
            Some(tag) => {
                format!("somebody else has changed the probe first: it exists, with the ETag {tag}")
            }
            None => "the probe does not exist any more, or not yet".to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_api::ConfigDocument;

    use super::*;

    fn holds(
        if_match: Option<&str>,
        if_none_match: Option<&str>,
        present: Option<(u64, &str)>,
    ) -> bool {
        let own = |tags: &str| tags.to_owned();
        let conditions = Conditions {
            if_match: if_match.map(own),
            if_none_match: if_none_match.map(own),
        };
        let stored = present.map(|(revision, created)| StoredProbe {
            revision,
            created: created.to_owned(),
            instance: None,
            pushed_by: None,
            config: ConfigDocument::default(),
            lease: None,
            running: None,
        });
        conditions.check(stored.as_ref()).is_ok()
    }

    #[test]
    fn conditions_hold_as_rfc_9110_says() {
        let probe = Some((2, "2026-11-21T10:00:00.5Z"));
        let tag = tag(2, "2026-11-21T10:00:00.5Z");
        assert!(holds(None, None, None) && holds(None, None, probe));
        let listed = format!("\"x\" , {tag},W/\"y\"");
        let weak = format!("W/{tag}");
        for (if_match, there, created_anew, gone) in [
            (&*tag, true, false, false),
            (&listed, true, false, false),
            (" * ", true, true, false),
            (&weak, false, false, false),
            ("\"2\"", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(holds(Some(if_match), None, probe), there, "{if_match}");
            assert_eq!(
                holds(Some(if_match), None, Some((2, "2026-11-21T10:00:01Z"))),
                created_anew,
                "{if_match}"
            );
            assert_eq!(holds(Some(if_match), None, None), gone, "{if_match}");
        }
        for (if_none_match, there, gone) in [
            ("*", false, true),
            (&*tag, false, true),
            (&weak, false, true),
            (&listed, false, true),
            ("\"1\"", true, true),
        ] {
            assert_eq!(
                holds(None, Some(if_none_match), probe),
                there,
                "{if_none_match}"
            );
            assert_eq!(
                holds(None, Some(if_none_match), None),
                gone,
                "{if_none_match}"
            );
        }
        assert!(!holds(Some("*"), Some("*"), probe) && !holds(Some("*"), Some("*"), None));
    }
}
