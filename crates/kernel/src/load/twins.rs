//! The loading of twins from one object: one compilation, two loads. The twins differ only in the
//! maps bound to them: maps of snapshot metrics are private to each twin, all other maps are shared
//! (Algorithm 1 of the paper, lines 12-21, without its second compilation).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use aya_obj::Function;
use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};

use crate::admit::admission;
use crate::admit::verdicts::Verdicts;
use crate::capabilities::Capabilities;
use crate::load::both::both;
use crate::load::clear::clear;
use crate::load::direction::LoadedDirection;
use crate::load::maps::{Predecessor, ProbeMaps, Twins};
use crate::load::refusal::{map_finding, refused};
use crate::load::{bind, verifier};
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::DirectionPlan;
use crate::sys::call::KernelError;
use crate::sys::prog::{self, InfoRecords, ProgLoad};
use crate::trial::programs;
use crate::trial::replay::clock;
use crate::trial::replay::control::Control;

/// Loads the programs and maps of `plan`, the plan of `object`. Maps that are the same in `old` are
/// taken over from there, and maps that both directions use from `first`, the direction that is
/// loaded already. The programs of a replay have the `clock` of a capture.
pub fn load(
    plan: Arc<DirectionPlan>,
    object: &ProbeObject,
    capabilities: &Capabilities,
    old: Option<&Predecessor>,
    first: Option<&LoadedDirection>,
    clock: Option<&Control>,
) -> Result<LoadedDirection, Rejection> {
    let source = plan.code.clone();
    let finding = |message: String| Finding::new(Stage::Load, &source, message);
    let refuse = |error: KernelError| Rejection::from(map_finding(&plan, &error));
    let resolved = bind::resolve(object).map_err(|error| finding(with_causes(&error)))?;
    admission::references(&plan, object, &resolved)?;
    let function =
        bind::link(resolved.into_owned(), &plan).map_err(|error| finding(with_causes(&error)))?;
    let unwritten = admission::program(&plan, object, &function)?;
    let function = clear(function, &unwritten).map_err(|error| finding(error.to_string()))?;
    let verdicts = Verdicts::of(&function.instructions);
    let mut warnings = Vec::new();
    let btf = prog::btf_load(&object.btf_blob)
        .map_err(|error| {
            warnings.push(finding(format!(
                "the kernel refuses the type information: {error}"
            )));
        })
        .ok();
    let (types, first) = (
        btf.as_ref().map(AsFd::as_fd),
        first.map(|first| &*first.own),
    );
    let own = ProbeMaps::create(Arc::clone(&plan), types, old, first).map_err(refuse)?;
    let program = |twin| {
        let instructions = bind::bind(&function, &own.of_twin(twin));
        let load = |function: &Function, instructions: &[bpf_insn]| {
            let (program, verified) = load_program(object, &plan, &btf, function, instructions)?;
            admission::verified(&plan, object, function, verified)?;
            Ok::<_, Rejection>(program)
        };
        let Some(clock) = clock else {
            return load(&function, &instructions);
        };
        let replayed = clock::follow(&function, &instructions, clock.map());
        let (function, instructions) = replayed.map_err(|error| finding(error.to_string()))?;
        load(&function, &instructions)
    };
    let programs = if plan.has_twins() {
        Twins::Private(both(program)?)
    } else {
        Twins::Shared(program(0)?)
    };
    let maps = own.readers(capabilities).map_err(refuse)?;
    Ok(LoadedDirection {
        plan,
        programs,
        verdicts,
        maps,
        own: Arc::new(own),
        warnings,
    })
}

/// Adopts the direction that an earlier daemon has loaded as planned: `open` returns its maps by
/// name and twin, and `programs` are its programs, loaded from `object`. Fails with the reason if
/// they do not fit the plan.
pub fn adopt(
    plan: Arc<DirectionPlan>,
    object: &ProbeObject,
    capabilities: &Capabilities,
    mut programs: Vec<OwnedFd>,
    open: impl FnMut(&str, usize) -> Result<OwnedFd, String>,
) -> Result<LoadedDirection, String> {
    let own = ProbeMaps::adopt(Arc::clone(&plan), open)?;
    let programs = match (plan.has_twins(), programs.pop(), programs.pop()) {
        (false, Some(program), None) => Twins::Shared(program),
        (true, Some(second), Some(first)) => Twins::Private([first, second]),
        _ => return Err("the number of programs does not fit".into()),
    };
    let maps = own
        .readers(capabilities)
        .map_err(|error| with_causes(&error))?;
    let verdicts = bind::linked(object, &plan).map(|function| Verdicts::of(&function.instructions));
    let verdicts = verdicts.unwrap_or(Verdicts::UNKNOWN);
    Ok(LoadedDirection {
        plan,
        programs,
        verdicts,
        maps,
        own: Arc::new(own),
        warnings: Vec::new(),
    })
}

fn load_program(
    object: &ProbeObject,
    plan: &DirectionPlan,
    btf: &Option<OwnedFd>,
    function: &Function,
    instructions: &[bpf_insn],
) -> Result<(OwnedFd, u64), Rejection> {
    with_program(
        object,
        plan,
        btf,
        (function, instructions),
        verifier::load_verified,
    )
    .map_err(|refusal| refused(object, function, &plan.code, refusal))
}

/// Calls `load` with the kernel's arguments for loading `function`, whose instructions are bound to
/// its maps.
pub fn with_program<T>(
    object: &ProbeObject,
    plan: &DirectionPlan,
    btf: &Option<OwnedFd>,
    (function, instructions): (&Function, &[bpf_insn]),
    load: impl FnOnce(&ProgLoad<'_>) -> T,
) -> T {
    let (func_info, line_info) = (
        function.func_info.func_info_bytes(),
        function.line_info.line_info_bytes(),
    );
    let program = ProgLoad {
        license: &object.program.license,
        btf: btf.as_ref().map(AsFd::as_fd),
        func_info: InfoRecords {
            bytes: &func_info,
            record_size: function.func_info_rec_size as u32,
            count: function.func_info.len() as u32,
        },
        line_info: InfoRecords {
            bytes: &line_info,
            record_size: function.line_info_rec_size as u32,
            count: function.line_info.len() as u32,
        },
        ..ProgLoad::new(&object.defined.entry, plan.attach.hook.kind(), instructions)
    };
    load(&programs::of_kind(program, plan.kind()))
}
