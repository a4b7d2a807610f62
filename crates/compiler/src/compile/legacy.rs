//! Names that published sources use without a definition, because some header once had them, or has
//! them now: names of early libbpf, names of sources inside the kernel, and names of the kernel's
//! later API.

use twinprobe_ebpf_common::unit::{Unit, included};

use crate::vmlinux::KernelTypes;

/// The header with the names.
const HEADER: &str = "twinprobe/legacy.h";
/// The integer types of sources inside the kernel, and the types of the C library, which these
/// sources also have.
const INTEGERS: [&str; 8] = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"];
const STANDARD: [&str; 8] = [
    "uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t", "int16_t", "int32_t", "int64_t",
];
/// Headers that only the kernel's own sources have.
const INSIDE: [&str; 4] = ["linux/skbuff.h", "net/sock.h", "net/tcp.h", "net/udp.h"];
const ORDER: [&str; 4] = ["htons", "ntohs", "htonl", "ntohl"];
/// Macros of the kernel's API for packets. A file of types has none, and headers for user space do
/// not fit beside it. In the kernel's own sources other headers include them.
const MACROS: [(&str, &str); 36] = [
    ("AF_INET", "2"),
    ("AF_INET6", "10"),
    ("CLOCK_BOOTTIME", "7"),
    ("CLOCK_MONOTONIC", "1"),
    ("ETH_ALEN", "6"),
    ("ETH_HLEN", "14"),
    ("ETH_P_8021AD", "0x88A8"),
    ("ETH_P_8021Q", "0x8100"),
    ("ETH_P_ARP", "0x0806"),
    ("ETH_P_IP", "0x0800"),
    ("ETH_P_IPV6", "0x86DD"),
    ("ICMPV6_ECHO_REPLY", "129"),
    ("ICMPV6_ECHO_REQUEST", "128"),
    ("ICMP_DEST_UNREACH", "3"),
    ("ICMP_ECHO", "8"),
    ("ICMP_ECHOREPLY", "0"),
    ("ICMP_TIME_EXCEEDED", "11"),
    ("IFNAMSIZ", "16"),
    ("IPPROTO_ICMPV6", "58"),
    ("IP_DF", "0x4000"),
    ("IP_MF", "0x2000"),
    ("IP_OFFSET", "0x1FFF"),
    ("NEXTHDR_DEST", "60"),
    ("NEXTHDR_FRAGMENT", "44"),
    ("NEXTHDR_HOP", "0"),
    ("NEXTHDR_ROUTING", "43"),
    ("TC_ACT_OK", "0"),
    ("TC_ACT_PIPE", "3"),
    ("TC_ACT_QUEUED", "5"),
    ("TC_ACT_RECLASSIFY", "1"),
    ("TC_ACT_REDIRECT", "7"),
    ("TC_ACT_REPEAT", "6"),
    ("TC_ACT_SHOT", "2"),
    ("TC_ACT_STOLEN", "4"),
    ("TC_ACT_TRAP", "8"),
    ("TC_ACT_UNSPEC", "(-1)"),
];
/// The headers and definitions that a source needs if it uses one of these names without a
/// definition.
const NAMES: [(&str, &str); 5] = [
    ("LIKELY", "likely"),
    ("UNLIKELY", "unlikely"),
    ("FORCE", "__force"),
    ("FOR", "bpf_for"),
    ("FOR", "bpf_repeat"),
];
/// Macros of the kernel's own sources that look like functions.
const CALLS: [(&str, &str); 6] = [
    ("MAX", "max"),
    ("MIN", "min"),
    ("CPU_TO_BE", "cpu_to_be16"),
    ("CPU_TO_BE", "cpu_to_be32"),
    ("BE_TO_CPU", "be16_to_cpu"),
    ("BE_TO_CPU", "be32_to_cpu"),
];
/// Protocols of a header that sources often forget, because another header has it on many hosts.
const PROTOCOLS: [&str; 3] = ["IPPROTO_ICMP", "IPPROTO_TCP", "IPPROTO_UDP"];
const VERDICTS: [&str; 4] = ["TCX_NEXT", "TCX_PASS", "TCX_DROP", "TCX_REDIRECT"];

/// The texts of a source, and where their names come from.
struct LegacySource<'a> {
    texts: Vec<&'a str>,
    /// True if the source includes the types of a kernel, and not the kernel's API.
    follows_types: bool,
    /// True if the source includes headers of the kernel's own sources, and no types of a kernel.
    is_inside: bool,
    /// True if the source includes the C library's headers for networks.
    has_library: bool,
}

/// Returns the arguments by which clang gives a source its undefined names.
pub fn arguments(unit: &Unit<'_>) -> Vec<String> {
    let source = LegacySource::new(unit);
    let texts = &source.texts;
    let names = NAMES
        .into_iter()
        .map(|(need, name)| (need, source.lacks(&[name])));
    let begins = begins_with_helpers(unit, texts);
    let types = ("TYPES", !source.follows_types && begins);
    let integers = INTEGERS
        .into_iter()
        .map(|name| (name, source.lacks_type(name)));
    let needs = source
        .needs()
        .into_iter()
        .chain(names)
        .chain(calls(texts))
        .chain([types])
        .chain(integers);
    let needs = needs.filter(|(_, is_needed)| *is_needed);
    let mut arguments: Vec<String> = needs
        .map(|(name, _)| format!("-DTWINPROBE_NEEDS_{name}"))
        .collect();
    if !arguments.is_empty() {
        arguments.extend(["-include", HEADER].map(str::to_owned));
    }
    let macros = MACROS.iter().filter(|(name, _)| source.lacks_macro(name));
    arguments.extend(macros.map(|(name, value)| format!("-D{name}={value}")));
    arguments
}

impl<'a> LegacySource<'a> {
    fn new(unit: &Unit<'a>) -> Self {
        let files = unit.files.values().map(String::as_str);
        let texts: Vec<&str> = files.chain([unit.source]).collect();
        // If the source uses the kernel's API, a file of this name contains only a few types of the
        // project.
        let is_api = |name: &str| name.strip_prefix("uapi/").unwrap_or(name) == "linux/bpf.h";
        let follows_types =
            texts.iter().any(|text| KernelTypes::are_asked_for(text)) && !includes(&texts, is_api);
        // The headers of the kernel's own sources have these types.
        let is_inside = |name: &str| name.starts_with("uapi/") || INSIDE.contains(&name);
        let is_inside = includes(&texts, is_inside) && !follows_types;
        let is_library = |name: &str| name.starts_with("netinet/") || name == "arpa/inet.h";
        let has_library = includes(&texts, is_library);
        Self {
            texts,
            follows_types,
            is_inside,
            has_library,
        }
    }

    /// Returns the parts of the header, and whether the source needs each of them.
    fn needs(&self) -> [(&'static str, bool); 16] {
        let (texts, follows_types) = (&self.texts, self.follows_types);
        let needs_helpers = self.needs_helpers();
        let has_elf = includes(texts, |name| name.ends_with("bpf_elf.h"));
        let has_integers = includes(texts, |name| name == "stdint.h");
        let has_truth = includes(texts, |name| name == "stdbool.h") || counts_truth(texts);
        let lacks_order = !self.has_library && lacks_calls(texts, &ORDER);
        let lacks_protocols = !self.has_library && lacks_protocols(texts);
        let lacks_pins = self.lacks(&["PIN_GLOBAL_NS"]) && !is_given(texts, "PIN_NONE");
        let lacks_verdicts = self.lacks(&VERDICTS) && !self.uses("tcx_action_base");
        [
            ("HELPERS", needs_helpers && !follows_types),
            ("HELPERS_BESIDE_TYPES", needs_helpers && follows_types),
            ("MAP_DEF", self.lacks(&["bpf_map_def"])),
            ("ANNOTATION", self.lacks(&["BPF_ANNOTATE_KV_PAIR"])),
            ("ELF_MAP", self.lacks(&["bpf_elf_map"]) && !has_elf),
            ("PINS", lacks_pins && !has_elf),
            ("TCX", lacks_verdicts && !follows_types),
            (
                "STDINT",
                self.is_inside && self.lacks(&STANDARD) && !has_integers,
            ),
            ("STDBOOL", self.lacks_truth() && !has_truth),
            ("NULL", self.is_inside && self.lacks(&["NULL"])),
            ("ORDER", lacks_order),
            ("PROTOCOLS", !follows_types && lacks_protocols),
            ("ETHER", self.lacks_header("ethhdr", "/if_ether.h")),
            ("TCP", self.lacks_header("tcphdr", "/tcp.h")),
            ("UDP", self.lacks_header("udphdr", "/udp.h")),
            ("VLAN_HDR", self.lacks_type("vlan_hdr")),
        ]
    }

    fn uses(&self, name: &str) -> bool {
        self.texts.iter().any(|text| has_word(text, name))
    }

    /// Tells whether the source uses one of these names and defines none of them.
    fn lacks(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.uses(name))
            && !names.iter().any(|name| defines(&self.texts, name))
    }

    fn lacks_type(&self, name: &str) -> bool {
        !self.follows_types
            && self.texts.iter().any(|text| names_type(text, name))
            && !defines(&self.texts, name)
    }

    /// Tells whether the source uses a name of this header of the kernel without including it.
    fn lacks_header(&self, name: &str, header: &str) -> bool {
        self.is_inside
            && self.lacks(&[name])
            && !includes(&self.texts, |other| other.ends_with(header))
    }

    /// Tells whether the source uses `bool` or its values, and has no such type.
    fn lacks_truth(&self) -> bool {
        self.lacks_type("bool")
            || !self.follows_types
                && !defines(&self.texts, "bool")
                && self.lacks(&["true", "false"])
    }

    /// Tells whether the source includes headers of libbpf that need its helper functions, without
    /// the header of these.
    fn needs_helpers(&self) -> bool {
        includes(&self.texts, |name| {
            name.ends_with("bpf_core_read.h") || name.ends_with("bpf_tracing.h")
        }) && !includes(&self.texts, |name| {
            has_helpers(name) || name == "twinprobe.h"
        }) && self.lacks(&["SEC"])
    }

    /// Tells whether the source uses a macro that none of its headers has.
    fn lacks_macro(&self, name: &str) -> bool {
        // The C library has some of the macros as numbers of an enum.
        let has_none = self.follows_types || self.is_inside && !self.has_library;
        has_none && self.lacks(&[name]) && !is_given(&self.texts, name)
    }
}

/// Tells whether the texts include a header by such a name.
fn includes(texts: &[&str], is: impl Fn(&str) -> bool) -> bool {
    texts.iter().any(|text| included(text).any(&is))
}

/// Tells whether the texts use protocols and include no header that has these.
fn lacks_protocols(texts: &[&str]) -> bool {
    let has = |name: &str| name.ends_with("/in.h") || name == "sys/socket.h";
    let is_known = |name: &&str| defines(texts, name) || is_given(texts, name);
    PROTOCOLS
        .iter()
        .any(|name| texts.iter().any(|text| has_word(text, name)))
        && !PROTOCOLS.iter().any(is_known)
        && !texts.iter().any(|text| included(text).any(has))
}

/// Tells whether a header by this name is libbpf's for helper functions.
fn has_helpers(name: &str) -> bool {
    name.ends_with("bpf_helpers.h")
}

/// Tells whether one of the texts includes that header before it has any types. A header of the
/// project's own has types.
fn begins_with_helpers(unit: &Unit<'_>, texts: &[&str]) -> bool {
    let has_types = |name: &str| {
        ["linux/", "asm/", "uapi/"]
            .iter()
            .any(|folder| name.starts_with(folder))
    };
    let is_own = unit.files.keys().any(|name| has_helpers(name));
    let is_first = |text: &&str| {
        let mut either = included(text).filter(|name| has_helpers(name) || has_types(name));
        either.next().is_some_and(has_helpers)
    };
    !is_own && texts.iter().any(is_first)
}

/// Tells whether one of the texts defines a name: as a struct, a type or a macro.
fn defines(texts: &[&str], name: &str) -> bool {
    let is_struct =
        |text: &str| words(text, name).any(|(_, rest)| rest.trim_start().starts_with('{'));
    let is_line = |line: &str| {
        let line = line.trim();
        let directive = line
            .strip_prefix('#')
            .map(str::trim_start)
            .and_then(|rest| rest.strip_prefix("define"));
        let is_macro = directive.is_some_and(|rest| {
            rest.trim_start()
                .strip_prefix(name)
                .is_some_and(|rest| !rest.starts_with(is_letter))
        });
        let declared = line.split(';').next().unwrap_or(line).trim_end();
        let is_last = declared
            .strip_suffix(name)
            .is_some_and(|rest| !rest.ends_with(is_letter));
        is_macro
            || is_last
                && (declared.starts_with("typedef") || declared.starts_with('}'))
                && line.contains(';')
    };
    texts
        .iter()
        .any(|text| is_struct(text) || text.lines().any(is_line))
}

/// Tells whether one of the texts gives a name a number, as an enum does.
fn is_given(texts: &[&str], name: &str) -> bool {
    let mut rests = texts
        .iter()
        .flat_map(|text| words(text, name))
        .map(|(_, rest)| rest.trim_start());
    rests.any(|rest| rest.starts_with('=') && !rest.starts_with("=="))
}

fn has_word(text: &str, name: &str) -> bool {
    words(text, name).next().is_some()
}

/// Tells whether a text uses a name as that of a type: before another name, a pointer or the end of
/// a cast.
fn names_type(text: &str, name: &str) -> bool {
    words(text, name).any(|(_, rest)| {
        rest.trim_start()
            .starts_with(|next| is_letter(next) || next == '*' || next == ')')
    })
}

/// Tells whether a text has the values of `bool` as those of an enum.
fn counts_truth(texts: &[&str]) -> bool {
    let packed = |text: &&str| text.split_whitespace().collect::<String>();
    let is_first = |text: String| {
        ["{false,", "{true,", "{false=", "{true="]
            .iter()
            .any(|begin| text.contains(begin))
    };
    texts.iter().map(packed).any(is_first)
}

/// Returns the needs of the texts for macros that look like functions.
fn calls(texts: &[&str]) -> impl Iterator<Item = (&'static str, bool)> {
    CALLS
        .into_iter()
        .map(move |(need, name)| (need, lacks_calls(texts, &[name])))
}

/// Tells whether the texts call functions or macros by these names without a definition.
fn lacks_calls(texts: &[&str], names: &[&str]) -> bool {
    names.iter().any(|name| only_calls(texts, name))
        && !names.iter().any(|name| defines(texts, name))
}

/// Tells whether the texts call a function by this name, and have no function by this name.
fn only_calls(texts: &[&str], name: &str) -> bool {
    let places = texts.iter().flat_map(|text| words(text, name));
    let mut called = places
        .filter(|(_, rest)| rest.trim_start().starts_with('('))
        .peekable();
    let is_declared = |before: &str| {
        let before = before.trim_end();
        let line = before.rsplit('\n').next().unwrap_or(before);
        if line.trim_start().starts_with('#') {
            return false;
        }
        let is_statement = ["return", "else"].iter().any(|word| before.ends_with(word));
        before.ends_with(|letter| is_letter(letter) || letter == '*') && !is_statement
    };
    called.peek().is_some() && !called.any(|(before, _)| is_declared(before))
}

/// Returns, for each place of a name in a text, the text before it and the text after it.
fn words<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let around = move |(at, _): (usize, &str)| (&text[..at], &text[at + name.len()..]);
    text.match_indices(name)
        .map(around)
        .filter(|(before, rest)| !before.ends_with(is_letter) && !rest.starts_with(is_letter))
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
            "struct __attribute__((packed)) bpf_map_def {",
            "typedef struct x\tbpf_map_def; // a type",
            "} bpf_map_def;",
            "#define bpf_map_def(x) x",
        ] {
            assert!(defines(&[text], "bpf_map_def"), "{text}");
        }
        for text in [
            "struct bpf_map_def SEC(\"maps\") x = {",
            "struct bpf_map_def2 {",
            "#define bpf_map_def_x",
        ] {
            assert!(!defines(&[text], "bpf_map_def"), "{text}");
        }
        assert!(
            is_given(&["enum { IP_MF = 1 };"], "IP_MF")
                && !is_given(&["x == IP_MF", "IP_MF == x"], "IP_MF")
        );
        assert!(has_word("(u8)x", "u8") && !has_word("__u8 u88", "u8"));
    }

    #[test]
    fn functions_are_told_from_calls() {
        for text in [
            "x = max(a, b);",
            "return max (a, b);",
            "f(max(a, b))",
            "a +\n max(b, c)",
            "#define MASK max(1, 2)",
        ] {
            assert!(only_calls(&[text], "max"), "{text}");
        }
        for text in [
            "int max(int a, int b);\nmax(1, 2)",
            "static int *max(void);",
            "max = 1;",
            "hmax(1, 2)",
        ] {
            assert!(!only_calls(&[text], "max"), "{text}");
        }
    }

    #[test]
    fn types_are_told_from_members_and_values() {
        for text in [
            "u8 x;",
            "(u8)x",
            "u8 *x",
            "sizeof(u8)",
            "struct {\n\tu8\tx; }",
        ] {
            assert!(names_type(text, "u8"), "{text}");
        }
        for text in ["__u8 u8[16];", "enum { u8, u16 };", "x.u8 = 1;", "u88 x;"] {
            assert!(!names_type(text, "u8"), "{text}");
        }
        assert!(
            counts_truth(&["typedef enum {\n\tfalse,\n\ttrue\n} x;"])
                && !counts_truth(&["f(true, 1)"])
        );
    }
}
