//! A window as a rule sees it: read from the store, rendered, and judged.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use twinprobe_api::{RuleAction, RuleDocument};
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::{Judgement, Rule, WindowView};

use crate::api::documents::document;
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::window::delivery::Delivery;
use crate::rules::probes;

/// The largest document that a rule reads, in bytes.
const LARGEST: usize = 16 << 20;

/// A window that was read.
#[derive(Debug)]
pub struct ReadWindow {
    pub seq: u64,
    pub shape: WindowShape,
    /// The document, or the reason why it is missing.
    pub document: Result<Arc<Value>, String>,
}

/// The rule for windows of one shape. Windows of another shape need another one.
#[derive(Debug, Default)]
pub struct ShapedRule(Option<(String, Arc<Rule>)>);

/// Reads a retained window. Other readers still get it.
pub async fn read(engine: &Arc<Engine>, probe: &str, seq: u64) -> Result<ReadWindow, EngineError> {
    let delivery = engine.window(probe, seq).await?;
    rendered(engine, delivery, seq).await
}

/// Renders a window and parses its document.
pub async fn rendered(engine: &Arc<Engine>, delivery: Delivery, seq: u64) -> Result<ReadWindow, EngineError> {
    let shape = delivery.shape(false);
    let rendering = document::begin(delivery, Format::Json, &engine.deployer).await?;
    let document = match rendering.whole(LARGEST).await? {
        Some(text) => tokio::task::spawn_blocking(move || serde_json::from_slice(&text))
            .await?
            .map(Arc::new)
            .map_err(|error| format!("the document of the window can't be parsed: {error}")),
        None => {
            Err(format!("the document of the window has more than {LARGEST} bytes; rules read no larger one"))
        }
    };
    Ok(ReadWindow { seq, shape, document })
}

impl ShapedRule {
    /// Returns the rule for windows of this shape. An error names the part that the windows lack.
    pub fn of(&mut self, document: &RuleDocument, shape: &WindowShape) -> Result<Arc<Rule>, String> {
        if let Some((digest, rule)) = &self.0
            && *digest == shape.digest
        {
            return Ok(Arc::clone(rule));
        }
        let rule = Rule::new(document.clone(), shape.clone()).map_err(|rejection| {
            let found = rejection.findings.iter().map(|finding| {
                let field = finding.field.as_deref().unwrap_or_default();
                format!("{field}: {}", finding.message)
            });
            found.collect::<Vec<_>>().join("; ")
        })?;
        let rule = Arc::new(rule);
        self.0 = Some((shape.digest.clone(), Arc::clone(&rule)));
        Ok(rule)
    }
}

/// Returns a time of a document in nanoseconds since the Unix epoch.
pub fn nanoseconds(time: &str) -> i64 {
    let time = time.parse::<Timestamp>().map_or(0, Timestamp::as_nanosecond);
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// The judgement of a window, and the actions that would follow.
pub struct Judged {
    pub judgement: Result<Judgement, String>,
    pub actions: Result<Vec<RuleAction>, String>,
}

/// Evaluates the rule away from the threads that answer requests.
pub async fn judge(
    engine: &Arc<Engine>,
    rule: Arc<Rule>,
    window: Result<Arc<Value>, String>,
    before: Option<Arc<Value>>,
) -> Result<Judged, EngineError> {
    let engine = Arc::clone(engine);
    let work = move || {
        let failed = |error: String| Judged { judgement: Err(error.clone()), actions: Err(error) };
        let document = match window {
            Ok(document) => document,
            Err(error) => return Ok(failed(error)),
        };
        let views = WindowView::new(&document)
            .and_then(|window| Ok((window, before.as_deref().map(WindowView::new).transpose()?)));
        let (window, before) = match views {
            Ok(views) => views,
            Err(error) => return Ok(failed(error)),
        };
        let judgement = rule.judge(&window, before.as_ref());
        let holds = judgement.as_ref().is_ok_and(|judgement| judgement.when);
        let actions = match holds {
            true => rule.actions(&window, before.as_ref(), &probes::templates(&engine, rule.document())?),
            false => Ok(Vec::new()),
        };
        Ok(Judged { judgement, actions })
    };
    tokio::task::spawn_blocking(work).await?
}
