//! The documents of the REST API: configurations as clients send them, statuses and problems as the
//! daemon answers them.

#![forbid(unsafe_code)]

mod config;
mod entries;
mod fleet;
mod history;
mod names;
mod near;
mod nodes;
mod pods;
mod problem;
mod rule;
mod rule_history;
mod rule_secrets;
mod series;
mod status;
mod template;

pub use self::config::document::{
    ConfigDocument, DirectionDocument, MergeDocument, MetricDocument, WindowDocument,
};
pub use self::config::error::ParseError;
pub use self::config::parse::{
    parse_any_json, parse_any_yaml, parse_document, parse_entries, parse_entries_yaml, parse_yaml,
};
pub use self::config::place::place_of;
pub use self::config::pods::PodsDocument;
pub use self::config::present::Object;
pub use self::entries::{MapChange, MapEntries};
pub use self::fleet::assignment::{
    AssignmentSpec, CompiledRevision, RevisionKind, RevisionObjects, RevisionSpec,
};
pub use self::fleet::overview::{FleetObject, FleetOverview};
pub use self::fleet::report::{NodeReport, NodeState};
pub use self::fleet::spec::{
    Canary, FleetAttach, FleetBudget, FleetProbeSpec, FleetRollout, FleetRuleSpec, OnFailure,
    RuleScope,
};
pub use self::fleet::status::{
    FleetCondition, FleetCounts, FleetFailure, FleetRuleStatus, FleetStatus, WorstCost,
};
pub use self::history::{ChangeKind, HistoryEntry, HistoryList};
pub use self::names::{AddressNames, AskedPort, FoundName, NameList, NameOrigin, PortNames};
pub use self::near::meant;
pub use self::nodes::{
    NodeChart, NodeCharts, NodeDocument, NodeDocuments, NodeList, NodeProbe, NodeProblem,
    NodeStatus,
};
pub use self::pods::{PodEntry, PodList, PodStatus, PodTable, ServiceEntry, Workload};
pub use self::problem::hint::hint;
pub use self::problem::problem::{Problem, finding_line};
pub use self::rule::{
    RuleAction, RuleChange, RuleDecision, RuleDocument, RuleFiring, RuleList, RuleNodes,
    RuleNotification, RuleProbe, RuleStatus, RuleTrial,
};
pub use self::rule_history::{RuleRevision, RuleRevisionList};
pub use self::rule_secrets::masked_url;
pub use self::series::{Chart, ChartKind, ChartSeries, OtherKeys};
pub use self::status::{
    AttachmentStatus, CostStatus, EventStatus, JoinStatus, LastRead, LiveCost, MapReport,
    MetricReport, ProbeList, ProbeStatus, ProbeTraffic, ProgramStatus, Revision, RevisionList,
    RevisionWindows, Rollback, SharedMapStatus, SumStatus, ValidationReport, WindowStatus, Word,
};
pub use self::template::{TemplateList, TemplateStatus};
