//! The choice of an advice for a finding.

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::unit::{included, is_vmlinux};

use crate::problem::advice::{Advice, COMPILER, HEADERS, SPELLINGS, VERIFIER};
use crate::problem::excerpt::Excerpt;

/// Messages about an unknown name, which is quoted at their end.
const UNKNOWN: [&str; 7] = [
    "use of undeclared identifier",
    "unknown type name",
    "undeclared function",
    "implicit declaration of function",
    "implicitly declaring library function",
    "incomplete type",
    "incomplete definition of type",
];

/// The beginning of the message about names that no file defines.
const UNDEFINED: &str = "the source uses ";
const LINKED: &str = "define it in the source, or leave it out; where a header has it only for a macro that the project's build gives (`-D`), give \
     that macro in `defines`; where the project's loader writes a number into the program, declare a `const volatile` variable, and give it a \
     value in `variables`";

/// The advice about a header of which many projects have their own copy, or a different header of
/// that name.
const OF_LIBBPF: &str =
    "bpf_helpers.h is libbpf's here: if the project has one of its own, copy it beside the source";
/// Folders of the kernel's headers.
const KERNEL: [&str; 5] = ["linux/", "net/", "asm/", "asm-generic/", "uapi/"];
/// Headers of libbpf that most sources need.
const HELPERS: [&str; 4] = [
    "bpf/bpf_helpers.h",
    "bpf/bpf_endian.h",
    "bpf/bpf_core_read.h",
    "bpf/bpf_tracing.h",
];

/// Returns the correction for a frequent message of the compiler or the verifier. `source` is the
/// text that the finding is about.
pub fn hint(finding: &Finding, source: &str) -> Option<String> {
    let (message, place) = (
        &finding.message,
        Excerpt::new(source, finding.line, finding.column),
    );
    match finding.stage {
        Stage::Compile if is_of_source(finding, source) => {
            Some("the source itself says so: where its build or loader gives the macro that it asks for, give the macro in `defines`".to_owned())
        }
        Stage::Compile
            if message.starts_with("in ") && message.contains("/bpf_helper") && has_own_helpers(source) =>
        {
            Some(OF_LIBBPF.to_owned())
        }
        Stage::Compile => name_hint(message, source).or_else(|| header_hint(message)).or_else(|| {
            let advice = find(COMPILER, message).map(|advice| fill(advice, message, &place));
            advice.or_else(|| has_own_helpers(source).then(|| OF_LIBBPF.to_owned()))
        }),
        Stage::Load => Some(fill(find(VERIFIER, message)?, message, &place)),
        Stage::Admission => name_hint(message, source),
        Stage::Config | Stage::Attach => None,
    }
}

/// Tells whether an `#error` of the source is the reason.
fn is_of_source(finding: &Finding, source: &str) -> bool {
    let line = finding
        .line
        .and_then(|line| source.lines().nth(line.checked_sub(1)? as usize));
    let directive = line.and_then(|line| line.trim_start().strip_prefix('#'));
    directive.is_some_and(|directive| directive.trim_start().starts_with("error"))
}

fn has_own_helpers(source: &str) -> bool {
    included(source).any(|name| name == "bpf_helpers.h")
}

/// Tells whether a source declares a function as one of the kernel.
fn is_of_kernel(source: &str, name: &str) -> bool {
    let declarations = source
        .split(';')
        .filter_map(|declaration| declaration.split_once(name));
    declarations
        .filter(|(_, rest)| rest.starts_with('('))
        .any(|(_, rest)| rest.contains("__ksym"))
}

fn find(list: &[Advice], message: &str) -> Option<&'static str> {
    let has = |word: &&str| match word.strip_prefix('!') {
        Some(unwanted) => !message.contains(unwanted),
        None => message.contains(*word),
    };
    let fits = |(words, _): &&Advice| words.iter().all(has);
    list.iter().find(fits).map(|(_, advice)| *advice)
}

/// Returns an advice about a name that the compiler does not know.
fn name_hint(message: &str, source: &str) -> Option<String> {
    let name = if UNKNOWN.iter().any(|words| message.contains(words)) {
        quoted(message)?
    } else {
        message
            .strip_prefix(UNDEFINED)?
            .split_once(" without defining it")?
            .0
            .split(", ")
            .next()?
    };
    if let Some((_, instead)) = SPELLINGS.iter().find(|(other, _)| *other == name) {
        return Some(format!(
            "write {}",
            if instead.contains(' ') {
                (*instead).to_owned()
            } else {
                format!("`{instead}`")
            }
        ));
    }
    if message.contains("incomplete") && included(source).any(is_vmlinux) {
        return Some(format!(
            "vmlinux.h has the types of the daemon's kernel, and that kernel does not show the members of {name}: declare those that you \
             need in the source, with __attribute__((preserve_access_index))"
        ));
    }
    if message.starts_with(UNDEFINED) && is_of_kernel(source, name) {
        return Some(format!(
            "{name} is a function of the kernel (kfunc): leave the call out, or declare the function __weak and call it behind \
             `if (bpf_ksym_exists({name}))`, which counts as false here"
        ));
    }
    let Some((_, header)) = HEADERS.iter().find(|(begins, _)| name.starts_with(begins)) else {
        return unknown_hint(message, name);
    };
    // If the source includes the header already, the header does not define the name.
    let line = format!("#include <{header}>");
    let is_newer = *header == "linux/bpf.h" && name.starts_with("BPF_");
    Some(match source.contains(&line) {
        true if is_newer => {
            format!(
                "check the spelling; if a later <{header}> than this host's has {name}, give it in `defines`, or include \"vmlinux.h\" in place of it"
            )
        }
        true => format!("check the spelling: <{header}> has no {name}"),
        false if is_newer => {
            format!(
                "write `{line}` above; if the source has that line, this host's header is older than the name: give {name} in `defines`"
            )
        }
        false => format!("write `{line}` above"),
    })
}

/// Returns an advice about a name that is in no header that the hints know.
fn unknown_hint(message: &str, name: &str) -> Option<String> {
    if message.starts_with(UNDEFINED) {
        return Some(LINKED.to_owned());
    }
    // There is no hint if the compiler has suggested a name. Messages about incomplete types need
    // none: the name is known.
    let is_unclear = message.contains("undeclared identifier") && !message.contains("did you mean");
    let is_macro = name
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let given = if is_macro {
        ", or give it in `defines` if the project's build or loader does"
    } else {
        ""
    };
    is_unclear.then(|| {
        format!(
            "{name} is not known here: check its spelling, or declare it above this line{given}"
        )
    })
}

/// Returns an advice about a missing header.
fn header_hint(message: &str) -> Option<String> {
    if !message.ends_with("file not found") {
        return None;
    }
    let name = quoted(message)?;
    let inside = name.trim_start_matches("../");
    Some(match () {
        () if HELPERS.contains(&name) => {
            "install libbpf's headers on the daemon's host (Debian: libbpf-dev)".to_owned()
        }
        () if name.starts_with("xdp/") => format!(
            "install libxdp's headers on the daemon's host (Debian: libxdp-dev), or copy the file beside the source as `{name}`"
        ),
        () if inside.starts_with('/') || inside.contains("../") => {
            "name the file by its path below the source's folder".to_owned()
        }
        () if inside != name => format!(
            "copy it to `{inside}` below the source's folder: the line of the source can stay, `apply` sends the file along, and \
             requests have it in `files`"
        ),
        () if KERNEL.iter().any(|folder| name.starts_with(folder)) => format!(
            "the kernel's API has no <{name}>: check the spelling; a header of the kernel's sources is not there, and `#include \
             \"vmlinux.h\"` has their types; a header of the project itself goes beside the source as `{name}` (in requests: `files`)"
        ),
        () => format!(
            "copy it beside the source as `{inside}`, where `apply` finds it and sends it along (requests have it in `files`); if the \
             project's build makes it, build the project first"
        ),
    })
}

/// Returns the first name in quotes, without the word `struct`.
fn quoted(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once('\'')?;
    let (name, _) = rest.split_once('\'')?;
    Some(name.strip_prefix("struct ").unwrap_or(name))
}

/// Puts the words of the source into an advice.
fn fill(advice: &str, message: &str, place: &Excerpt<'_>) -> String {
    let mut text = advice.to_owned();
    for (word, value) in [
        ("{pointer}", place.pointer().unwrap_or("pointer").into()),
        ("{index}", place.index().unwrap_or("i").into()),
        ("{addend}", place.addend().unwrap_or("n").into()),
        ("{end}", place.end()),
        ("{pass}", place.pass().into()),
        ("{name}", quoted(message).unwrap_or("it").into()),
    ] {
        text = text.replace(word, &value);
    }
    text
}

#[cfg(test)]
mod tests;
