//! The programs of an object, and the program that a configuration chooses. The name of a section
//! shows the hook for which the author wrote the program, but the hook in the configuration
//! decides.

use std::collections::HashSet;

use object::build::elf::{Builder, SectionData, SectionId};
use object::elf::{SHF_EXECINSTR, STB_LOCAL, STT_FUNC};
use twinprobe_ebpf_common::hook::{Direction, Hook, ProgramKind};

/// The section of functions that are not programs. It may also be the first part of a section's
/// name.
const TEXT: &[u8] = b".text";

/// The meaning of a section's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionMeaning {
    /// An XDP program, for packets of several buffers or of a single one.
    Xdp {
        frags: bool,
    },
    Tc(Option<Direction>),
    /// A program in a map of devices or CPUs, which runs for redirected packets.
    Redirected,
    /// A program of another type. The kernel runs it elsewhere.
    Elsewhere,
    /// A name from which loaders derive no type: the code that attaches the program decides.
    Free,
}

/// A function in a separate section.
#[derive(Debug)]
pub struct ElfProgram {
    pub name: String,
    pub section: SectionId,
    /// The name of the section in the source.
    section_name: String,
    meaning: SectionMeaning,
    /// True if a table for `bpf_tail_call` contains the program.
    is_called: bool,
}

/// The reason why a program can't be the entry point.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("no entry point: the source needs one program in SEC(\"{section}\"){others}")]
    None {
        section: &'static str,
        others: String,
    },
    #[error(
        "{name} is in no section, so that it is not a program; write SEC(\"{section}\") before it"
    )]
    NoSection { name: String, section: &'static str },
    #[error(
        "{} entry points: {}; choose one by the field entry of the direction, or leave one program in SEC(\"{section}\")",
        names.len(),
        names.join(", ")
    )]
    Many {
        section: &'static str,
        names: Vec<String>,
    },
    #[error("entry is {wanted}, and the programs are {known}")]
    Unknown { wanted: String, known: String },
    #[error(
        "{name} is in SEC(\"{section}\"), and the hook {runs} runs other programs; write SEC(\"{runs}\"), or choose another program by \
         entry, or another hook"
    )]
    OtherHook {
        name: String,
        section: String,
        runs: &'static str,
    },
    #[error(
        "{name} is in SEC(\"{section}\"), whose programs run for packets that another program redirects, from a map of devices \
         or CPUs; write SEC(\"xdp\") to run it on an interface"
    )]
    Redirected { name: String, section: String },
}

/// The choice of the entry point.
#[derive(Debug)]
pub struct ProgramChoice {
    /// The name of the entry point, or of the program that the refusal is about.
    pub entry: String,
    pub section: SectionId,
    /// True if the entry point is an XDP program for packets of several buffers.
    pub frags: bool,
    /// The reason why the program can't be the entry point; `None` if it can.
    pub unfit: Option<Unfit>,
}

/// Returns the programs of an object, in the order of the object.
pub fn programs(builder: &Builder<'_>) -> Vec<ElfProgram> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let called = called(builder);
    let functions = builder
        .symbols
        .iter()
        .filter(|symbol| symbol.st_type() == STT_FUNC && symbol.st_size > 0);
    let functions = functions.filter_map(|function| {
        let section = builder.sections.get(function.section?);
        let is_code = section.sh_flags & u64::from(SHF_EXECINSTR) != 0;
        let is_program = is_code && !section.name.as_slice().starts_with(TEXT);
        is_program.then(|| {
            let section_name = text(section.name.as_slice());
            let meaning = meaning(&section_name);
            let name = text(function.name.as_slice());
            let is_called = called.contains(&name);
            (
                function.st_bind() != STB_LOCAL,
                ElfProgram {
                    name,
                    section: section.id(),
                    section_name,
                    meaning,
                    is_called,
                },
            )
        })
    });
    let mut functions: Vec<(bool, ElfProgram)> = functions.collect();
    // A static function beside a program is not a program itself.
    if functions.iter().any(|(is_global, _)| *is_global) {
        functions.retain(|(is_global, _)| *is_global);
    }
    functions.into_iter().map(|(_, program)| program).collect()
}

/// Refuses an object whose functions are all in the section of functions that programs call. The
/// refusal is about the last of them, because sources have the called functions first. Returns
/// `None` for an object with programs, or without functions.
pub fn without_section(
    builder: &Builder<'_>,
    programs: &[ElfProgram],
    hook: Hook,
) -> Option<ProgramChoice> {
    let functions = builder.symbols.iter().filter(|symbol| {
        symbol.st_type() == STT_FUNC && symbol.st_bind() != STB_LOCAL && symbol.st_size > 0
    });
    let in_text = functions.filter_map(|function| {
        let section = builder.sections.get(function.section?);
        section.name.as_slice().starts_with(TEXT).then_some((
            function.st_value,
            function,
            section.id(),
        ))
    });
    let (_, last, section) = in_text
        .filter(|_| programs.is_empty())
        .max_by_key(|(at, ..)| *at)?;
    let entry = String::from_utf8_lossy(last.name.as_slice()).into_owned();
    let unfit = Unfit::NoSection {
        name: entry.clone(),
        section: hook.kind().section(),
    };
    Some(ProgramChoice {
        entry,
        section,
        frags: false,
        unfit: Some(unfit),
    })
}

/// Returns the names of the programs to which definitions of maps refer. The kernel runs these
/// programs when other programs call them.
pub fn called(builder: &Builder<'_>) -> HashSet<String> {
    let tables = builder.sections.iter().filter(|section| {
        let of = section.sh_info_section.map(|id| builder.sections.get(id));
        of.is_some_and(|of| of.name.as_slice() == b".maps")
    });
    let relocations = tables.filter_map(|section| match &section.data {
        SectionData::Relocation(relocations) => Some(relocations),
        _ => None,
    });
    let symbols = relocations
        .flatten()
        .filter_map(|relocation| Some(builder.symbols.get(relocation.symbol?)));
    let programs = symbols.filter(|symbol| symbol.st_type() == STT_FUNC);
    programs
        .map(|symbol| String::from_utf8_lossy(symbol.name.as_slice()).into_owned())
        .collect()
}

/// Chooses the entry point for `hook`: the program that the configuration `wanted`; without such a
/// name, the only program; or else the only program whose section and name fit the hook best.
pub fn choose(
    programs: &[ElfProgram],
    hook: Hook,
    wanted: Option<&str>,
) -> Result<ProgramChoice, Unfit> {
    let section = hook.kind().section();
    let [first, others @ ..] = programs else {
        return Err(Unfit::None {
            section,
            others: String::new(),
        });
    };
    if let Some(wanted) = wanted {
        let named = programs.iter().find(|program| program.name == wanted);
        let known = || Unfit::Unknown {
            wanted: wanted.to_owned(),
            known: names(programs),
        };
        return named.map(|program| program.chosen(hook)).ok_or_else(known);
    }
    if others.is_empty() {
        return Ok(first.chosen(hook));
    }
    // The program of a table is not called for packets, unless it is the only one.
    let is_candidate =
        |program: &&ElfProgram| !program.is_called || programs.iter().all(|of| of.is_called);
    let candidates = programs.iter().filter(is_candidate);
    let scored = candidates.filter_map(|program| Some((program.score(hook)?, program)));
    let scored: Vec<(u8, &ElfProgram)> = scored.collect();
    let best = scored.iter().map(|(score, _)| *score).max();
    let mut best = scored
        .iter()
        .filter(|(score, _)| Some(*score) == best)
        .map(|(_, program)| *program);
    match (best.next(), best.next()) {
        (None, _) => {
            let others = format!("; {} belong to other hooks", names(programs));
            Ok(ProgramChoice {
                unfit: Some(Unfit::None { section, others }),
                ..first.chosen(hook)
            })
        }
        (Some(only), None) => Ok(only.chosen(hook)),
        (Some(one), Some(two)) => {
            let mut names: Vec<String> = [one, two]
                .into_iter()
                .chain(best)
                .map(|of| of.name.clone())
                .collect();
            names.sort();
            Ok(ProgramChoice {
                unfit: Some(Unfit::Many { section, names }),
                ..two.chosen(hook)
            })
        }
    }
}

fn names(programs: &[ElfProgram]) -> String {
    programs
        .iter()
        .map(|program| program.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

impl ElfProgram {
    /// Chooses the program for `hook`, with the reason if it can't run there.
    fn chosen(&self, hook: Hook) -> ProgramChoice {
        let (name, section) = (self.name.clone(), self.section_name.clone());
        let unfit = match (self.meaning, hook.kind()) {
            (SectionMeaning::Redirected, ProgramKind::Xdp) => {
                Some(Unfit::Redirected { name, section })
            }
            (SectionMeaning::Redirected | SectionMeaning::Xdp { .. }, ProgramKind::Tc)
            | (SectionMeaning::Tc(_), ProgramKind::Xdp)
            | (SectionMeaning::Elsewhere, _) => Some(Unfit::OtherHook {
                name,
                section,
                runs: hook.kind().section(),
            }),
            (SectionMeaning::Xdp { .. }, ProgramKind::Xdp)
            | (SectionMeaning::Tc(_), ProgramKind::Tc)
            | (SectionMeaning::Free, _) => None,
        };
        let frags = self.meaning == SectionMeaning::Xdp { frags: true };
        ProgramChoice {
            entry: self.name.clone(),
            section: self.section,
            frags,
            unfit,
        }
    }

    /// Tells how well the program fits the hook by its section and by the words of its name; `None`
    /// if it is for another hook.
    fn score(&self, hook: Hook) -> Option<u8> {
        let ours = Direction::from(hook);
        let words = SectionWords::of(&[&self.section_name, &self.name]);
        match (self.meaning, hook.kind()) {
            (SectionMeaning::Xdp { .. }, ProgramKind::Xdp) => Some(4),
            (SectionMeaning::Tc(Some(direction)), ProgramKind::Tc) => {
                (direction == ours).then_some(5)
            }
            (SectionMeaning::Tc(None), ProgramKind::Tc) => match words.direction {
                None => Some(4),
                Some(direction) => (direction == ours).then_some(5),
            },
            (SectionMeaning::Free, kind) => {
                let of_hook = words.kind.map(|named| named.section() == kind.section());
                let of_direction = words.direction.map(|direction| direction == ours);
                match (of_hook, of_direction) {
                    (Some(false), _) | (_, Some(false)) => None,
                    (Some(true), Some(true)) => Some(3),
                    (Some(true), None) | (None, Some(true)) => Some(2),
                    (None, None) => Some(1),
                }
            }
            _ => None,
        }
    }
}

/// The meaning of the words in a program's names.
struct SectionWords {
    kind: Option<ProgramKind>,
    direction: Option<Direction>,
}

impl SectionWords {
    fn of(names: &[&str]) -> Self {
        let split = |name: &&str| {
            name.split(|c: char| !c.is_ascii_alphanumeric())
                .map(str::to_ascii_lowercase)
                .collect()
        };
        let words: Vec<Vec<String>> = names.iter().map(split).collect();
        let find = |known: &[(&str, u8)]| {
            // The section counts more than the name.
            words.iter().find_map(|words| {
                words.iter().find_map(|word| {
                    known
                        .iter()
                        .find(|(known, _)| known == word)
                        .map(|(_, is)| *is)
                })
            })
        };
        let kind = find(&[
            ("xdp", 0),
            ("tc", 1),
            ("tcx", 1),
            ("cls", 1),
            ("classifier", 1),
            ("action", 1),
        ]);
        let direction = find(&[("ingress", 0), ("from", 0), ("egress", 1), ("to", 1)]);
        Self {
            kind: kind.map(|kind| [ProgramKind::Xdp, ProgramKind::Tc][usize::from(kind)]),
            direction: direction.map(|direction| Direction::ALL[usize::from(direction)]),
        }
    }
}

/// The names of sections for programs that run elsewhere than on packets of an interface, up to the
/// first `/`.
const ELSEWHERE: &[&str] = &[
    "cgroup",
    "cgroup_skb",
    "fentry",
    "fentry.s",
    "fexit",
    "fexit.s",
    "flow_dissector",
    "fmod_ret",
    "fmod_ret.s",
    "freplace",
    "iter",
    "iter.s",
    "kprobe",
    "kprobe.multi",
    "kprobe.session",
    "kretprobe",
    "kretprobe.multi",
    "ksyscall",
    "kretsyscall",
    "lirc_mode2",
    "lsm",
    "lsm.s",
    "lsm_cgroup",
    "lwt_in",
    "lwt_out",
    "lwt_seg6local",
    "lwt_xmit",
    "netfilter",
    "netkit",
    "perf_event",
    "raw_tp",
    "raw_tp.w",
    "raw_tracepoint",
    "raw_tracepoint.w",
    "sk_lookup",
    "sk_msg",
    "sk_reuseport",
    "sk_skb",
    "socket",
    "sockops",
    "struct_ops",
    "struct_ops.s",
    "syscall",
    "tp",
    "tp_btf",
    "tracepoint",
    "uprobe",
    "uprobe.s",
    "uprobe.multi",
    "uretprobe",
    "uretprobe.s",
    "usdt",
];

fn meaning(section: &str) -> SectionMeaning {
    // A question mark asks libbpf not to load the program automatically.
    let name = section.trim_start_matches('?');
    let (head, rest) = name.split_once('/').unwrap_or((name, ""));
    let in_map = ["cpumap", "devmap"].contains(&rest.split('/').next().unwrap_or_default());
    match head {
        "xdp" | "xdp.frags" if in_map => SectionMeaning::Redirected,
        "xdp_devmap" | "xdp_cpumap" | "xdp.frags_devmap" | "xdp.frags_cpumap" => {
            SectionMeaning::Redirected
        }
        "xdp" | "xdp.frags" => SectionMeaning::Xdp {
            frags: head == "xdp.frags",
        },
        "tc" | "tcx" | "classifier" | "action" => {
            let named = |direction: &Direction| {
                rest.split(['/', '_', '-'])
                    .any(|word| word == direction.name())
            };
            SectionMeaning::Tc(Direction::ALL.into_iter().find(named))
        }
        _ if ELSEWHERE.contains(&head) => SectionMeaning::Elsewhere,
        _ => SectionMeaning::Free,
    }
}

#[cfg(test)]
mod tests;
