//! The shapes of windows that a rule can judge. A replacement of the watched probe may bring other
//! ones.

use std::collections::BTreeMap;
use std::time::Duration;

use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::{FleetEvent, FleetRule, state_before};

use super::document::NamedRule;

/// The most shapes that are known at a time.
const MOST: usize = 64;

/// The digests of shapes, each with the reason why the rule can't judge such windows, if so.
#[derive(Debug, Default)]
pub struct KnownFits(BTreeMap<String, Option<String>>);

impl KnownFits {
    /// Checks whether the rule can judge windows of this shape. Returns the rule over such windows
    /// if the shape is new; `place` is the period with its length.
    pub fn check(
        &mut self,
        rule: &NamedRule,
        shape: &WindowShape,
        (period, length): (u64, Duration),
        events: &[FleetEvent],
    ) -> Result<Option<Box<FleetRule>>, String> {
        if let Some(known) = self.0.get(&shape.digest) {
            return known.clone().map_or(Ok(None), Err);
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let state = state_before(events, period, length, rule.document.actions.len());
        match FleetRule::new(rule.document.clone(), shape.clone(), length, state) {
            Ok(judge) => {
                self.0.insert(shape.digest.clone(), None);
                Ok(Some(Box::new(judge)))
            }
            Err(rejection) => {
                let reason = rejection.findings.first().map_or_else(String::new, told);
                tracing::error!(
                    rule = rule.name,
                    reason,
                    "windows of the watched probe can't be judged; they count as unjudged"
                );
                self.0.insert(shape.digest.clone(), Some(reason.clone()));
                Err(reason)
            }
        }
    }
}

fn told(finding: &Finding) -> String {
    let column = finding
        .column
        .map(|column| format!(", column {column}"))
        .unwrap_or_default();
    format!(
        "{}{column}: {}",
        finding.field.as_deref().unwrap_or("rule"),
        finding.message
    )
}
