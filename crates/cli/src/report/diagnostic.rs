//! A finding as text: its place, its message, the line of the source with a caret, and the text to
//! write instead.

use anstyle::Style;
use twinprobe_api::hint;
use twinprobe_ebpf_common::finding::Finding;

use crate::files::sources::Sources;
use crate::output::screen::{ERROR, HEADING, HINT, Screen, WARNING};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

impl Severity {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Error => ERROR,
            Self::Warning => WARNING,
        }
    }
}

/// Renders a finding as compilers do: `dns.bpf.c:37:11: error: message`, the line and a caret below
/// it.
pub fn diagnostic(
    finding: &Finding,
    severity: Severity,
    sources: &Sources,
    screen: Screen,
) -> String {
    let mut text = String::new();
    if let Some(place) = sources.place(finding) {
        text.push_str(&screen.paint(HEADING, &format!("{place}:")));
        text.push(' ');
    }
    let excerpt = excerpt(finding, sources, screen);
    // The line is quoted in full below.
    let quoted = excerpt
        .as_ref()
        .and_then(|_| finding.message.rsplit_once(" (at `"));
    let message = quoted.map_or(finding.message.as_str(), |(message, _)| message);
    text.push_str(&screen.paint(severity.style(), &format!("{}:", severity.word())));
    text.push_str(&format!(" {}", screen.paint(HEADING, message)));
    text.extend(excerpt);
    let source = sources
        .of(finding)
        .map(|source| source.text.as_str())
        .unwrap_or_default();
    if let Some(hint) = finding.hint.clone().or_else(|| hint(finding, source)) {
        text.push_str(&format!("\n{} {hint}", screen.paint(HINT, "hint:")));
    }
    text
}

/// Returns the line of the source under its number, and a caret under the column.
fn excerpt(finding: &Finding, sources: &Sources, screen: Screen) -> Option<String> {
    let number = finding.line?;
    let line = sources
        .of(finding)?
        .text
        .lines()
        .nth((number as usize).checked_sub(1)?)?;
    let mut text = format!("\n{number:>5} | {}", line.replace('\t', "    "));
    if let Some(column) = finding.column {
        // Columns count bytes, from 1.
        let end = line
            .char_indices()
            .map(|(at, _)| at)
            .find(|at| at + 1 >= column as usize);
        let before = &line[..end.unwrap_or(line.len())];
        let indent = before.replace('\t', "    ").chars().count();
        text.push_str(&format!(
            "\n      | {:indent$}{}",
            "",
            screen.paint(ERROR, "^")
        ));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::finding::Stage;

    use super::*;
    use crate::files::sources::SourceFile;

    #[test]
    fn a_finding_shows_its_line_a_caret_and_what_to_write() {
        let text = "int a;\n\tif (udp->dest == 53)\n".to_owned();
        let ingress = Some(SourceFile::new("dns.bpf.c".as_ref(), text));
        let sources = Sources {
            ingress,
            egress: None,
        };
        let message = "invalid access to packet, off=36 size=2, R1(id=0,off=36,r=34) (at `if (udp->dest == 53)`)";
        let finding = Finding::new(Stage::Load, "ingress.source", message).at(2, Some(11));
        let screen = Screen {
            width: 80,
            colour: false,
            wide: false,
        };
        assert_eq!(
            diagnostic(&finding, Severity::Error, &sources, screen),
            "dns.bpf.c:2:11: error: invalid access to packet, off=36 size=2, R1(id=0,off=36,r=34)\n    \
             2 |     if (udp->dest == 53)\n      |              ^\n\
             hint: compare with the end of the packet before the access: `if ((void *)(udp + 1) > data_end) return \
             XDP_PASS;`"
        );
        let coloured = diagnostic(
            &finding,
            Severity::Warning,
            &sources,
            Screen {
                colour: true,
                ..screen
            },
        );
        assert!(
            coloured.contains("\u{1b}[33mwarning:\u{1b}[0m"),
            "{coloured:?}"
        );
        let elsewhere = Finding::new(Stage::Config, "ingress.metrics[0].agg", "unknown");
        assert_eq!(
            diagnostic(&elsewhere, Severity::Error, &Sources::default(), screen),
            "ingress.metrics[0].agg: error: unknown"
        );
    }
}
