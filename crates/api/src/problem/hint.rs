//! The choice of an advice for a finding.

use twinprobe_ebpf_common::finding::{Finding, Stage};

use crate::problem::advice::{Advice, COMPILER, HEADERS, SPELLINGS, VERIFIER};
use crate::problem::excerpt::Excerpt;

/// Messages about an unknown name, which their last words quote.
const UNKNOWN: [&str; 7] = [
    "use of undeclared identifier",
    "unknown type name",
    "undeclared function",
    "implicit declaration of function",
    "implicitly declaring library function",
    "incomplete type",
    "incomplete definition of type",
];

/// Returns what to write instead, for one of the frequent messages of the compiler and the verifier. `source` is the
/// text that the finding is about.
pub fn hint(finding: &Finding, source: &str) -> Option<String> {
    let (message, place) = (&finding.message, Excerpt::new(source, finding.line, finding.column));
    match finding.stage {
        Stage::Compile => name_hint(message, source).or_else(|| {
            let advice = find(COMPILER, message)?;
            Some(fill(advice, message, &place))
        }),
        Stage::Load => Some(fill(find(VERIFIER, message)?, message, &place)),
        Stage::Admission => name_hint(message, source),
        Stage::Config | Stage::Attach => None,
    }
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
        message.strip_prefix("the source uses ")?.split_once(" without defining it")?.0
    };
    if let Some((_, instead)) = SPELLINGS.iter().find(|(other, _)| *other == name) {
        return Some(format!(
            "write {}",
            if instead.contains(' ') { (*instead).to_owned() } else { format!("`{instead}`") }
        ));
    }
    let Some((_, header)) = HEADERS.iter().find(|(begins, _)| name.starts_with(begins)) else {
        // There is no hint if the compiler has suggested a name. Messages about incomplete types need none: the name is
        // known.
        let is_unclear = message.contains("undeclared identifier") && !message.contains("did you mean");
        return is_unclear
            .then(|| format!("{name} is not known here: check its spelling, or declare it above this line"));
    };
    // If the source includes the header already, the header does not define the name.
    let line = format!("#include <{header}>");
    Some(if source.contains(&line) {
        format!("check the spelling: <{header}> has no {name}")
    } else {
        format!("write `{line}` above")
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
