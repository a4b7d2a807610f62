//! Sources and requests for the tests: made by hand, or compiled by clang if types matter.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use aya_obj::btf::BtfFeatures;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::hook::{Hook, Position, Verdict, XdpMode};
use twinprobe_ebpf_common::metric::{Counting, MapCopy, OnReplace, StrategyChoice, Visibility};
use twinprobe_ebpf_common::{Btf, MapKind, MergeRules};

use crate::plan::build::directions;
use crate::plan::draft::Planned;
use crate::plan::map_spec::MapSpec;
use crate::plan::object::Definitions;
use crate::plan::probe_plan::{DirectionPlan, ProbePlan};
use crate::plan::request::{DirectionRequest, KernelFacts, KernelOptions};
use twinprobe_ebpf_common::request::{AttachRequest, MetricRequest};

static ALL_TYPES: BtfFeatures = BtfFeatures::new(true, true, true, true, true, true, true, true);

pub const FACTS: KernelFacts = KernelFacts {
    possible_cpus: 3,
    page_size: 4096,
    monotonic_zero_ns: 7,
    btf: Some(&ALL_TYPES),
    xdp_frags: true,
    options: KernelOptions(|name| (name == "CONFIG_HZ").then(|| "250".to_owned())),
};

pub const HEADER: &str = r#"
#define SEC(x) __attribute__((section(x), used))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define __array(name, val) typeof(val) *name[]
typedef unsigned int u32;
typedef unsigned long long u64;
"#;

/// Compiles `source` by clang and returns the object.
pub fn compile(source: &str) -> Vec<u8> {
    let mut clang = Command::new("clang")
        .args([
            "-target",
            "bpf",
            "-g",
            "-fdebug-compilation-dir=/",
            "-O2",
            "-fno-addrsig",
            "-c",
            "-x",
            "c",
            "-",
            "-o",
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("clang is on the PATH");
    let mut stdin = clang.stdin.take().unwrap();
    stdin.write_all(HEADER.as_bytes()).unwrap();
    stdin.write_all(source.as_bytes()).unwrap();
    drop(stdin);
    let output = clang.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Makes a map without types, with keys and values of 8 bytes.
pub fn map(kind: MapKind) -> MapSpec {
    numbered(kind.bpf_type().unwrap())
}

/// Makes a map of any type, by the type's number.
pub fn numbered(map_type: u32) -> MapSpec {
    MapSpec {
        map_type,
        key_size: 8,
        value_size: 8,
        max_entries: 16,
        ..MapSpec::default()
    }
}

/// Makes a map of maps.
pub fn outer(kind: MapKind, inner: MapKind) -> MapSpec {
    MapSpec {
        inner: Some(Box::new(map(inner))),
        ..map(kind)
    }
}

/// Makes a source that defines `maps`. `slots` are the initial inner maps: outer map, slot, inner
/// map.
pub fn defines(maps: &[(&str, MapSpec)], slots: &[(&str, u32, &str)]) -> Definitions {
    // The BTF has a header and no types.
    let mut btf = vec![0x9f, 0xeb, 1, 0];
    btf.extend(
        [24, 0, 0, 0, 1_u32]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    btf.push(0);
    Definitions {
        entry: "entry".to_owned(),
        frags: false,
        others: Vec::new(),
        maps: maps
            .iter()
            .map(|(name, spec)| ((*name).to_owned(), spec.clone()))
            .collect(),
        calls: Default::default(),
        unused: Default::default(),
        slots: slots
            .iter()
            .map(|(outer, slot, inner)| ((*outer).into(), *slot, (*inner).into()))
            .collect(),
        btf: Btf::parse(&btf).unwrap(),
        warnings: Vec::new(),
        sees: Default::default(),
    }
}

/// Makes a metric with nothing but its map.
pub fn live(map: &str) -> MetricRequest {
    MetricRequest {
        field: String::new(),
        name: format!("of_{map}"),
        map: map.to_owned(),
        counting: Counting::Live,
        visibility: Visibility::Export,
        aggregation: None,
        strategy: StrategyChoice::Auto,
        on_replace: OnReplace::Carry,
        event_type: None,
    }
}

/// Makes a metric whose windows do not add up.
pub fn window(map: &str) -> MetricRequest {
    MetricRequest {
        counting: Counting::Window(MapCopy::Snapshot),
        ..live(map)
    }
}

/// Makes a metric whose windows add up.
pub fn cumulative(map: &str) -> MetricRequest {
    MetricRequest {
        counting: Counting::Sum(MergeRules::default()),
        ..live(map)
    }
}

/// Makes the request for a direction at this hook with these metrics.
pub fn at(hook: Hook, metrics: Vec<MetricRequest>) -> DirectionRequest {
    let (xdp_mode, verdict) = (XdpMode::Auto, Verdict::Observe);
    let attach = AttachRequest {
        hook,
        xdp_mode,
        verdict,
        sample: None,
        priority: 0,
        position: Position::Last,
    };
    let metrics = metrics.into_iter().enumerate().map(|(index, metric)| {
        let field = format!("{}.metrics[{index}]", hook.direction());
        MetricRequest { field, ..metric }
    });
    let code = format!("{}.source", hook.direction());
    let (on_replace, metrics, places) = (OnReplace::Carry, metrics.collect(), BTreeMap::new());
    let (variables, max_entries, fill, anew) = Default::default();
    DirectionRequest {
        attach,
        entry: None,
        variables,
        max_entries,
        fill,
        anew,
        code,
        on_replace,
        metrics,
        places,
    }
}

/// Plans a source with these metrics. Returns the plan and its warnings, or the findings.
pub fn planned(defined: &Definitions, metrics: Vec<MetricRequest>) -> Planned {
    requested(at(Hook::Xdp, metrics), defined)
}

/// Plans a source as requested. Returns the plan and its warnings, or the findings.
pub fn requested(request: DirectionRequest, defined: &Definitions) -> Planned {
    directions([(request, defined)], &[], FACTS).remove(0)
}

/// Plans a source without mistakes.
pub fn plan(defined: &Definitions, metrics: Vec<MetricRequest>) -> DirectionPlan {
    planned(defined, metrics).unwrap().0
}

/// Returns the findings about a source with these metrics: field and message.
pub fn refused(defined: &Definitions, metrics: Vec<MetricRequest>) -> Vec<(String, String)> {
    texts(&planned(defined, metrics).unwrap_err())
}

pub fn texts(findings: &[Finding]) -> Vec<(String, String)> {
    findings
        .iter()
        .map(|finding| {
            (
                finding.field.clone().unwrap_or_default(),
                finding.message.clone(),
            )
        })
        .collect()
}

/// Plans a compiled XDP source. Returns the plan and the findings.
pub fn compiled(source: &str, metrics: Vec<MetricRequest>) -> (ProbePlan, Vec<Finding>) {
    let elf = compile(&format!(
        "{source}\nSEC(\"xdp\") int entry(void *ctx) {{ return 2; }}"
    ));
    let (plan, _, findings) = ProbePlan::build([(at(Hook::Xdp, metrics), &elf[..])], &[], FACTS);
    (plan, findings)
}

/// Returns the names of the maps that are private to each twin.
pub fn private(plan: &DirectionPlan) -> Vec<&str> {
    plan.maps
        .iter()
        .filter(|map| map.private)
        .map(|map| map.name.as_str())
        .collect()
}
