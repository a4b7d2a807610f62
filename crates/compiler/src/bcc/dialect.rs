//! The dialect of a source, and clang's options for a source in BCC's dialect.

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::hook::Verdict;

use crate::bcc::calls;
use crate::bcc::entry::{self, CONVENTIONAL, HANDLE_RX};
use crate::bcc::scan::{Addressed, Function, Scan, scan};
use twinprobe_ebpf_common::unit::{Dialect, Unit};

/// The names of macros that place a program or a map in a section. A source that uses one of them
/// is for libbpf.
const SECTIONS: [&str; 3] = ["SEC", "__section", "section"];
/// The macros that define tables. A source for BCC without functions has at least one.
const TABLES: [&str; 5] = [
    "BPF_TABLE",
    "BPF_HASH",
    "BPF_ARRAY",
    "BPF_PERCPU_ARRAY",
    "BPF_PERCPU_HASH",
];
/// The type of a table that another program defines.
const EXTERN: &str = "extern";
/// The structs of the dialect's headers that sources like to define themselves.
const STRUCTS: [&str; 7] = [
    "eth_hdr", "iphdr", "tcphdr", "udphdr", "icmphdr", "lpm_key", "vlan_hdr",
];
/// The functions that need a map of their own; the map is defined only if a source calls them.
const USES: [&str; 4] = [
    "dp_log",
    "pcn_log",
    "pkt_to_controller",
    "pcn_pkt_controller",
];
/// The warnings that are switched off, because BCC compiles sources without `-Wall`.
const QUIET: [&str; 8] = [
    "-Wno-address-of-packed-member",
    "-Wno-gnu-variable-sized-type-not-at-end",
    "-Wno-int-conversion",
    "-Wno-macro-redefined",
    "-Wno-misleading-indentation",
    "-Wno-pointer-sign",
    "-Wno-unused",
    "-Wno-incompatible-pointer-types-discards-qualifiers",
];

/// A call through a table ends the function in which clang has inlined it. So every function is
/// inlined, as in BCC.
const INLINE: [&str; 2] = ["-mllvm", "-inline-threshold=1000000"];

/// Limits of integers that sources define as constants, because no header of the kernel has them.
const LIMITS: [&str; 4] = ["UINT8_MAX", "UINT16_MAX", "UINT32_MAX", "UINT64_MAX"];

/// Returns the arguments of clang for a source for BCC, in addition to those for all sources.
#[derive(Debug)]
pub struct BccArguments {
    pub arguments: Vec<String>,
    /// The tables that the source takes from the other direction.
    pub shared: Vec<String>,
}

/// Returns clang's options for a source in BCC's dialect; `None` if the source is for libbpf. Fails
/// if a source for BCC has no function that sees packets.
pub fn told(unit: &Unit<'_>) -> Result<Option<BccArguments>, Finding> {
    let mut found = match unit.dialect {
        Dialect::Libbpf => return Ok(None),
        Dialect::Auto | Dialect::Bcc => scan(unit.source),
    };
    if unit.dialect == Dialect::Auto && !looks_like_bcc(&found) {
        return calls::refused_for_libbpf(unit).map_or(Ok(None), Err);
    }
    unit.files
        .values()
        .for_each(|text| found.take_in(scan(text)));
    let function = entry::choose(&found, unit)?;
    let offsets = offsets(unit, &found)?;
    let calls = calls::definitions(unit, &found, function)?;
    let mut arguments: Vec<String> = QUIET.map(str::to_owned).to_vec();
    if !offsets.is_empty() {
        arguments.extend(["-include", "bcc/offsets.h"].map(str::to_owned));
    }
    if !calls.is_empty() {
        arguments.extend(INLINE.map(str::to_owned));
    }
    let all = definitions(unit, &found, function)
        .into_iter()
        .chain(calls)
        .chain(offsets);
    arguments.extend(all.map(|definition| format!("-D{definition}")));
    let other = unit.other.map(scan).unwrap_or_default();
    let mut shared = Vec::new();
    for name in found
        .tables
        .iter()
        .filter(|(_, kind)| *kind == EXTERN)
        .map(|(name, _)| *name)
    {
        let is_here = |(known, kind): &&(&str, &str)| *known == name && *kind != EXTERN;
        // Several alternatives of the preprocessor may declare the table, of which the direction
        // selects one.
        let elsewhere = other.tables.iter().find(is_here);
        if let Some((_, kind)) = elsewhere.or_else(|| found.tables.iter().find(is_here)) {
            arguments.push(format!("-DTWINPROBE_EXTERN_{name}=~,1,"));
            arguments.push(format!("-DTWINPROBE_TYPE_{name}=\"{kind}\""));
        }
        if elsewhere.is_some() {
            shared.push(name.to_owned());
        }
    }
    arguments.extend(["-include", "bcc/dialect.h"].map(str::to_owned));
    Ok(Some(BccArguments { arguments, shared }))
}

/// Returns definitions for headers whose addresses the source uses as numbers. In such a line, a
/// header's address is its offset in the packet, as in BCC. Fails if a line uses a header in both
/// ways.
fn offsets(unit: &Unit<'_>, found: &Scan<'_>) -> Result<Vec<String>, Finding> {
    let mut definitions = Vec::new();
    let is_line = |line: &str| {
        line.trim_start()
            .strip_prefix('#')
            .is_some_and(|rest| rest.trim_start().starts_with("line"))
    };
    let has_lines = unit.source.lines().any(is_line);
    for Addressed {
        name,
        numbers,
        others,
    } in &found.addresses
    {
        if let Some(line) = numbers
            .iter()
            .find(|line| has_lines || others.contains(line))
        {
            let message = format!(
                "{name} is a copy of a header, and one line uses it as a number and as a header; write (u64)cursor for the offset of \
                 what follows it, or take its address in a line of its own (and without #line)"
            );
            return Err(Finding::new(Stage::Compile, unit.field, message).at(*line, None));
        }
        definitions.push(format!(
            "{name}=TBCC_NAMED({name},__INCLUDE_LEVEL__,__LINE__)"
        ));
        let all = numbers
            .iter()
            .map(|line| (line, "AT"))
            .chain(others.iter().map(|line| (line, "HERE")));
        definitions
            .extend(all.map(|(line, meaning)| format!("TBCC_LINE_{name}_{line}=~,TBCC_{meaning}")));
    }
    Ok(definitions)
}

/// Tells whether a source has functions or tables of BCC's kind and places nothing in a section.
/// For libbpf, such a source would have no program.
fn looks_like_bcc(found: &Scan<'_>) -> bool {
    let has_sections = SECTIONS.iter().any(|name| found.names.contains(name));
    let is_for_bcc = |function| entry::is_candidate(function) || entry::traces(function);
    !has_sections
        && (found.functions.iter().any(is_for_bcc)
            || TABLES.iter().any(|name| found.names.contains(name)))
}

fn definitions(unit: &Unit<'_>, found: &Scan<'_>, function: &Function<'_>) -> Vec<String> {
    let number = |name: &str, value: bool| format!("TWINPROBE_{name}={}", u8::from(value));
    let conventional = CONVENTIONAL.contains(&function.name);
    let mut list = vec![
        number("ENFORCE", unit.verdict == Verdict::Enforce),
        number("METADATA", conventional),
        number(
            "TAKES_METADATA",
            conventional && function.parameters.len() > 1,
        ),
        number("HANDLE_RX", function.name == HANDLE_RX),
        format!("TWINPROBE_ENTRY={}", function.name),
        format!(
            "TWINPROBE_CONTEXT={}",
            function.context().unwrap_or("CTXTYPE")
        ),
        format!("TWINPROBE_PACKET={}", packet(found, function)),
    ];
    let defined = STRUCTS
        .into_iter()
        .filter(|name| found.structs.contains(name));
    list.extend(defined.map(|name| format!("TWINPROBE_DEFINES_{name}")));
    if LIMITS
        .iter()
        .any(|name| unit.source.contains(&format!("{name} =")))
    {
        list.push("TWINPROBE_OWN_LIMITS".to_owned());
    }
    let is_enumerator = |line: &str| {
        ["DROP,", "DROP ="]
            .iter()
            .any(|begin| line.trim_start().starts_with(begin))
    };
    if unit.source.lines().any(is_enumerator) {
        list.push("TWINPROBE_OWN_VERDICTS".to_owned());
    }
    if found.structs.contains("ethhdr") {
        list.push("__UAPI_DEF_ETHHDR=0".to_owned());
    }
    let used = USES.into_iter().filter(|name| found.names.contains(name));
    list.extend(used.map(|name| format!("TWINPROBE_USES_{name}=1")));
    let layouts: Vec<String> = found
        .headers
        .iter()
        .map(|(name, widths)| format!("struct {name} *: \"{widths}\","))
        .collect();
    if !layouts.is_empty() {
        list.push(format!("TWINPROBE_LAYOUTS={}", layouts.join(" ")));
    }
    list
}

/// Returns the name of the packet's context in the functions that read headers by a cursor: a
/// cursor is only an offset.
fn packet<'a>(found: &Scan<'a>, function: &Function<'a>) -> &'a str {
    let with_cursor = found
        .functions
        .iter()
        .filter(|function| function.has_cursor);
    let first =
        |function: &Function<'a>| function.parameters.first().map(|parameter| parameter.name);
    with_cursor
        .chain([function])
        .find_map(first)
        .unwrap_or("ctx")
}
