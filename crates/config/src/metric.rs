//! `metrics[]`: the fields of a metric, and their rules.

use std::collections::HashSet;
use std::time::Duration;

use twinprobe_api::{MergeDocument, MetricDocument};
use twinprobe_ebpf_common::metric::{Counting, MapCopy, StrategyChoice, Visibility};
use twinprobe_ebpf_common::request::MetricRequest;
use twinprobe_ebpf_common::{Aggregation, MergeRule, MergeRules};

use crate::validate::findings::{Defaults, Findings};
use crate::validate::{labels, names};

const SHORTEST_EXPIRY: Duration = Duration::from_millis(100);
const LONGEST_EXPIRY: Duration = Duration::from_hours(8760);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricConfig {
    /// The part of the metric that concerns the kernel.
    pub request: MetricRequest,
    pub help: Option<String>,
    pub sum: SumConfig,
    /// The label of a key without parts in OpenMetrics; `None` for the usual one.
    pub key_label: Option<String>,
    /// The most entries that become samples of OpenMetrics, the largest ones; `None` for no limit.
    pub max_series: Option<u64>,
    /// The path of the number by which these entries are the largest; `None` for the first counter.
    pub series_by: Option<String>,
}

/// The limits of the sum of all windows, for maps whose entries come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumConfig {
    /// The limit of entries; `None` for the default of the map.
    pub entries: Option<usize>,
    /// The time after which an entry without windows leaves the sum; `None` if it stays.
    pub expires: Option<Duration>,
}

impl MetricConfig {
    /// Makes a metric without settings of its own.
    pub fn new(request: MetricRequest) -> Self {
        let (help, sum, key_label) = (None, SumConfig::default(), None);
        Self {
            request,
            help,
            sum,
            key_label,
            max_series: None,
            series_by: None,
        }
    }
}

/// Checks the metrics of the direction `at` and adds their mistakes to `findings`.
pub fn check_all(
    at: &str,
    documents: &[MetricDocument],
    defaults: &Defaults,
    findings: &mut Findings,
) -> Vec<MetricConfig> {
    if !findings.fits(&format!("{at}.metrics"), documents.len()) {
        return Vec::new();
    }
    let mut by_name = HashSet::new();
    let mut metrics = Vec::with_capacity(documents.len());
    for (i, document) in documents.iter().enumerate() {
        let at = format!("{at}.metrics[{i}]");
        let metric = check(&at, document, defaults, findings);
        if !metric.request.name.is_empty() && !by_name.insert(metric.request.name.clone()) {
            let name = names::quote(&metric.request.name);
            let message = format!("another metric of this direction is called {name} already");
            findings.add(format!("{at}.name"), message);
        }
        metrics.push(metric);
    }
    metrics
}

fn check(
    at: &str,
    document: &MetricDocument,
    defaults: &Defaults,
    findings: &mut Findings,
) -> MetricConfig {
    let name = document.name.clone().unwrap_or_default();
    if document.name.is_none() {
        findings.add(format!("{at}.name"), "the metric has no name");
    } else if !names::is_metric_name(&name) {
        let quoted = names::quote(&name);
        let rule = "letters, digits, '_' and ':' are allowed, no digit first";
        findings.add(
            format!("{at}.name"),
            format!("{quoted} is not a metric name; {rule}"),
        );
    }
    let map = document.map.clone().unwrap_or_default();
    if let Err(message) = check_map(document.map.as_deref()) {
        findings.add(format!("{at}.map"), message);
    }
    let (agg, field) = (document.agg.as_deref(), format!("{at}.agg"));
    let known = Aggregation::ALL.map(|aggregation| (aggregation.name(), aggregation));
    let aggregation = findings.choose(&field, "aggregation", agg, &known);
    let visibility = if document.export == Some(false) {
        Visibility::Hidden
    } else {
        Visibility::Export
    };
    let (snapshot, init) = (document.snapshot == Some(true), document.init == Some(true));
    let cumulative = snapshot && !init;
    if document.merge.is_some() && !cumulative {
        let message = "merge adds up windows; it needs snapshot: true and init: false";
        findings.add(format!("{at}.merge"), message);
    }
    let merge = document
        .merge
        .as_ref()
        .map(|merge| check_merge(&format!("{at}.merge"), merge, findings));
    let counting = match (snapshot, init) {
        (true, true) => Counting::Window(MapCopy::Snapshot),
        (false, true) => Counting::Window(MapCopy::Live),
        (true, false) => Counting::Sum(merge.unwrap_or_default()),
        (false, false) => Counting::Live,
    };
    let sum_entries = document
        .sum_entries
        .map(|entries| usize::try_from(entries).unwrap_or(usize::MAX));
    if sum_entries.is_some() && !cumulative {
        let message =
            "sum_entries limits the sum of windows; it needs snapshot: true and init: false";
        findings.add(format!("{at}.sum_entries"), message);
    }
    let expires = document.sum_expires.as_deref().and_then(|text| {
        let possible = SHORTEST_EXPIRY..=LONGEST_EXPIRY;
        let time = names::duration(
            text,
            "time for entries of a sum",
            possible,
            "100ms to 8760h",
        );
        time.map_err(|message| findings.add(format!("{at}.sum_expires"), message))
            .ok()
    });
    if document.sum_expires.is_some() && !cumulative {
        let message = "sum_expires removes entries from the sum of windows; it needs snapshot: true and init: false";
        findings.add(format!("{at}.sum_expires"), message);
    }
    if let Some(Err(message)) = document.key_label.as_deref().map(labels::check_name) {
        findings.add(format!("{at}.key_label"), message);
    }
    if document.max_series == Some(0) {
        let message = "at least 1 series is needed; export: false shows none";
        findings.add(format!("{at}.max_series"), message);
    }
    if document.series_by.is_some() && document.max_series.is_none() {
        let message = "series_by chooses the series for max_series; it needs max_series";
        findings.add(format!("{at}.series_by"), message);
    }
    let (strategy, field) = (document.strategy.as_deref(), format!("{at}.strategy"));
    let strategy = findings.choose(&field, "strategy", strategy, &StrategyChoice::NAMES);
    let on_replace =
        findings.on_replace(&format!("{at}.on_replace"), document.on_replace.as_deref());
    if let Some(event_type) = document
        .event_type
        .as_deref()
        .filter(|name| !names::is_type_name(name))
    {
        let message = format!(
            "{} is not a name of a C type, as in struct event",
            names::quote(event_type)
        );
        findings.add(format!("{at}.type"), message);
    }
    let request = MetricRequest {
        field: at.to_owned(),
        name,
        map,
        counting,
        visibility,
        aggregation,
        strategy: strategy.unwrap_or(StrategyChoice::Auto),
        on_replace: on_replace.unwrap_or(defaults.on_replace),
        event_type: document.event_type.clone(),
    };
    MetricConfig {
        request,
        help: document.help.clone(),
        sum: SumConfig {
            entries: sum_entries,
            expires,
        },
        key_label: document.key_label.clone(),
        max_series: document.max_series,
        series_by: document.series_by.clone(),
    }
}

/// The section of the counters that `twinprobe.h` adds, which documents show with the maps.
const COUNTERS: &str = ".data.twinprobe";

fn check_map(map: Option<&str>) -> Result<(), String> {
    let Some(map) = map else {
        return Err("the metric names no map".to_owned());
    };
    let variable = map
        .split_once(':')
        .filter(|(section, _)| is_section(section))
        .map(|(_, variable)| variable);
    if !names::is_c_identifier(variable.unwrap_or(map)) {
        let rule = "name a map, or a global variable as in .bss:VAR, .data:VAR or .rodata:VAR";
        return Err(format!(
            "{} is not a name of a map in the source; {rule}",
            names::quote(map)
        ));
    }
    Ok(())
}

fn check_merge(at: &str, document: &MergeDocument, findings: &mut Findings) -> MergeRules {
    let rule = |findings: &mut Findings, at: &str, name: &str| {
        findings
            .choose(at, "merge rule", Some(name), &MergeRule::NAMES)
            .unwrap_or_default()
    };
    match document {
        MergeDocument::Whole(name) => rule(findings, at, name).into(),
        MergeDocument::Fields(fields) if !findings.fits(at, fields.len()) => MergeRules::default(),
        MergeDocument::Fields(fields) => {
            let fields = fields.iter().map(|(field, name)| {
                (
                    field.clone(),
                    rule(findings, &format!("{at}.{field}"), name),
                )
            });
            MergeRules {
                fields: fields.collect(),
                ..MergeRules::default()
            }
        }
    }
}

/// Tells whether a section has variables: `.bss`, `.data`, `.rodata`, or a section with such a name
/// and a suffix (`.data.x`).
fn is_section(name: &str) -> bool {
    let rest = [".bss", ".data", ".rodata"]
        .into_iter()
        .find_map(|kind| name.strip_prefix(kind));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') && rest.chars().all(is_name))
        && name != COUNTERS
}
