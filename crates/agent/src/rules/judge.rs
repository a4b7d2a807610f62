//! The judgement of a window by a rule: the window is read from the store, rendered, and judged.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use twinprobe_api::{RuleAction, RuleDocument};
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::{Judgement, Rule, WindowView};

use crate::api::documents::document;
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::window::delivery::Delivery;
use crate::rules::actions::RuleActions;
use crate::rules::probes;
use crate::store::rules::StoredRule;

/// The largest document that a rule reads, in bytes.
const LARGEST: usize = 16 << 20;

/// A window that was read.
#[derive(Debug)]
pub struct ReadWindow {
    pub seq: u64,
    pub shape: WindowShape,
    /// The document of the window, or the reason why the document is missing.
    pub document: Result<Arc<Value>, String>,
}

/// A rule that is prepared for windows of one shape. Windows of another shape need another object.
#[derive(Debug, Default)]
pub struct ShapedRule(Option<(String, Arc<Rule>)>);

/// Reads a retained window. The window stays available for other readers.
pub async fn read(engine: &Arc<Engine>, probe: &str, seq: u64) -> Result<ReadWindow, EngineError> {
    let delivery = engine.window(probe, seq).await?;
    rendered(engine, delivery, seq).await
}

/// Returns the document of the window before the window `seq`, if the rule has judged that window.
/// The document is the `known` one, or comes from the store after a start of the daemon.
pub async fn before(
    actions: &RuleActions,
    stored: &Mutex<StoredRule>,
    seq: u64,
    known: Option<Arc<Value>>,
) -> Option<Arc<Value>> {
    if known.is_some() {
        return known;
    }
    let judged = stored.lock().before(seq)?;
    read(&actions.engine, &actions.watched, judged)
        .await
        .ok()?
        .document
        .ok()
}

/// Renders a window and parses its document.
pub async fn rendered(
    engine: &Arc<Engine>,
    delivery: Delivery,
    seq: u64,
) -> Result<ReadWindow, EngineError> {
    let shape = delivery.shape(false);
    let rendering = document::begin(delivery, Format::Json, &engine.deployer).await?;
    let document = match rendering.whole(LARGEST).await? {
        Some(text) => tokio::task::spawn_blocking(move || serde_json::from_slice(&text))
            .await?
            .map(Arc::new)
            .map_err(|error| format!("the document of the window can't be parsed: {error}")),
        None => Err(format!(
            "the document of the window has more than {LARGEST} bytes; rules read no larger one"
        )),
    };
    Ok(ReadWindow {
        seq,
        shape,
        document,
    })
}

impl ShapedRule {
    /// Returns the rule, prepared for windows of this shape. A rejection names the parts that the
    /// windows lack.
    pub async fn of(
        &mut self,
        document: &RuleDocument,
        shape: WindowShape,
    ) -> Result<Result<Arc<Rule>, Rejection>, EngineError> {
        if let Some((digest, rule)) = &self.0
            && *digest == shape.digest
        {
            return Ok(Ok(Arc::clone(rule)));
        }
        let (digest, document) = (shape.digest.clone(), document.clone());
        let checked = tokio::task::spawn_blocking(move || Rule::new(document, shape)).await?;
        Ok(checked.map(|rule| {
            let rule = Arc::new(rule);
            self.0 = Some((digest, Arc::clone(&rule)));
            rule
        }))
    }
}

/// Returns the findings in one line of text.
pub fn reasons(rejection: &Rejection) -> String {
    let found = rejection.findings.iter().map(|finding| {
        let field = finding.field.as_deref().unwrap_or_default();
        format!("{field}: {}", finding.message)
    });
    found.collect::<Vec<_>>().join("; ")
}

/// Returns a time in a document, in nanoseconds since the Unix epoch.
pub fn nanoseconds(time: &str) -> i64 {
    let time = time
        .parse::<Timestamp>()
        .map_or(0, Timestamp::as_nanosecond);
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// A window and its predecessor, which a rule judges. The work runs on other threads than those
/// that answer requests.
#[derive(Clone)]
pub struct JudgedPair {
    pub rule: Arc<Rule>,
    pub window: Result<Arc<Value>, String>,
    pub before: Option<Arc<Value>>,
}

impl JudgedPair {
    /// Evaluates the conditions.
    pub async fn judge(&self) -> Result<Result<Judgement, String>, EngineError> {
        let of = self.clone();
        let work = move || of.with(|window, before| of.rule.judge(window, before));
        Ok(tokio::task::spawn_blocking(work).await?)
    }

    /// Returns the actions of a firing.
    pub async fn actions(
        &self,
        engine: &Arc<Engine>,
    ) -> Result<Result<Vec<RuleAction>, String>, EngineError> {
        let (of, engine) = (self.clone(), Arc::clone(engine));
        let work = move || {
            let templates = probes::templates(&engine, of.rule.document())?;
            Ok(of.with(|window, before| of.rule.actions(window, before, Some(&templates))))
        };
        tokio::task::spawn_blocking(work).await?
    }

    fn with<T>(
        &self,
        of: impl FnOnce(&WindowView<'_>, Option<&WindowView<'_>>) -> Result<T, String>,
    ) -> Result<T, String> {
        let window = WindowView::new(self.window.as_deref().map_err(String::clone)?)?;
        let before = self.before.as_deref().map(WindowView::new).transpose()?;
        of(&window, before.as_ref())
    }
}
