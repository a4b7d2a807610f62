//! Names that published sources take for granted, and that headers had once or have by now: those of early libbpf, those that only
//! sources inside the kernel have, and those of the kernel's later API.

use twinprobe_ebpf_common::unit::{Unit, included};

use crate::vmlinux::KernelTypes;

/// The header with the names.
const HEADER: &str = "twinprobe/legacy.h";
/// The integer types of sources inside the kernel, and those of the C library, which these have, too.
const INTEGERS: [&str; 8] = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"];
const STANDARD: [&str; 8] =
    ["uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t", "int16_t", "int32_t", "int64_t"];
const ORDER: [&str; 4] = ["htons", "ntohs", "htonl", "ntohl"];
const VERDICTS: [&str; 4] = ["TCX_NEXT", "TCX_PASS", "TCX_DROP", "TCX_REDIRECT"];

/// Returns the arguments by which clang gives a source the names that it uses and does not define.
pub fn arguments(unit: &Unit<'_>) -> Vec<String> {
    let texts: Vec<&str> = unit.files.values().map(String::as_str).chain([unit.source]).collect();
    let uses = |name: &str| texts.iter().any(|text| has_word(text, name));
    let contains = |words: &str| texts.iter().any(|text| text.contains(words));
    let follows_types = texts.iter().any(|text| KernelTypes::are_asked_for(text));
    let includes = |is: &dyn Fn(&str) -> bool| texts.iter().any(|text| included(text).any(is));
    // The headers of the kernel's own sources have these types.
    let is_inside = includes(&|name| name.starts_with("uapi/")) && !follows_types;
    let lacks = |names: &[&str]| {
        names.iter().any(|name| uses(name)) && !names.iter().any(|name| defines(&texts, name))
    };
    let needs = [
        ("MAP_DEF", uses("bpf_map_def") && !defines(&texts, "bpf_map_def")),
        ("ANNOTATION", uses("BPF_ANNOTATE_KV_PAIR") && !defines(&texts, "BPF_ANNOTATE_KV_PAIR")),
        ("TCX", lacks(&VERDICTS) && !contains("tcx_action_base") && !follows_types),
        ("LIKELY", lacks(&["likely"])),
        ("UNLIKELY", lacks(&["unlikely"])),
        ("INTEGERS", is_inside && lacks(&INTEGERS)),
        ("STDINT", is_inside && lacks(&STANDARD) && !includes(&|name| name == "stdint.h")),
        ("STDBOOL", is_inside && lacks(&["bool"])),
        ("NULL", is_inside && lacks(&["NULL"])),
        ("ORDER", is_inside && lacks(&ORDER)),
    ];
    let needs = needs.into_iter().filter(|(_, is_needed)| *is_needed);
    let mut arguments: Vec<String> = needs.map(|(name, _)| format!("-DTWINPROBE_NEEDS_{name}")).collect();
    if !arguments.is_empty() {
        arguments.extend(["-include", HEADER].map(str::to_owned));
    }
    arguments
}

/// Tells whether one of the texts defines a name: as a struct, a type or a macro.
fn defines(texts: &[&str], name: &str) -> bool {
    let is_struct = |text: &str| {
        let mut all = text.match_indices(name);
        all.any(|(at, _)| {
            text[..at].trim_end().ends_with("struct") && text[at + name.len()..].trim_start().starts_with('{')
        })
    };
    let is_line = |line: &str| {
        let line = line.trim();
        let directive =
            line.strip_prefix('#').map(str::trim_start).and_then(|rest| rest.strip_prefix("define"));
        let is_macro = directive.is_some_and(|rest| {
            rest.trim_start().strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_letter))
        });
        is_macro || line.starts_with("typedef") && line.ends_with(&format!(" {name};"))
    };
    texts.iter().any(|text| is_struct(text) || text.lines().any(is_line))
}

fn has_word(text: &str, name: &str) -> bool {
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_letter) && !text[at + name.len()..].starts_with(is_letter))
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_as_structs_types_and_macros() {
        for text in [
            "struct bpf_map_def {\n",
            "struct bpf_map_def\n{",
            "typedef struct x bpf_map_def;",
            "# define bpf_map_def x",
            "#define bpf_map_def(x) x",
        ] {
            assert!(defines(&[text], "bpf_map_def"), "{text}");
        }
        for text in
            ["struct bpf_map_def SEC(\"maps\") x = {", "struct bpf_map_def2 {", "#define bpf_map_def_x"]
        {
            assert!(!defines(&[text], "bpf_map_def"), "{text}");
        }
        assert!(has_word("(u8)x", "u8") && !has_word("__u8 u88", "u8"));
    }
}
