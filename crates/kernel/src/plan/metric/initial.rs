//! The initial values that a configuration gives to variables.

use serde_json::Value;
use twinprobe_ebpf_common::SectionVariable;
use twinprobe_ebpf_common::field::write::write;
use twinprobe_ebpf_common::finding::{Finding, Stage};

use crate::plan::metric::losses;
use crate::plan::object::Definitions;
use crate::plan::request::DirectionRequest;

/// The sections of variables, by the beginnings of their names.
const SECTIONS: [&str; 3] = [".data", ".rodata", ".bss"];
/// The section of the kernel's options, which the kernel decides.
const OPTIONS: &str = ".rodata.kconfig";
/// The prefix of the names of variables that the daemon sets.
const OWN: &str = "twinprobe_";
/// The most names that a message lists.
const LISTED: usize = 50;

/// Sets the values in the definitions of an object. Returns a finding for each variable that can't
/// be set.
pub fn set(defined: &mut Definitions, request: &DirectionRequest) -> Vec<Finding> {
    let direction = request.attach.hook.direction();
    let outcomes = request.variables.iter().filter_map(|(name, value)| {
        let message = set_one(defined, name, value).err()?;
        Some(Finding::new(
            Stage::Load,
            format!("{direction}.variables.{name}"),
            message,
        ))
    });
    outcomes.collect()
}

/// Returns the variables that may be set, each with its section.
fn variables(defined: &Definitions) -> Vec<(String, SectionVariable)> {
    let is_open = |section: &&String| {
        SECTIONS
            .iter()
            .any(|beginning| section.starts_with(beginning))
            && *section != OPTIONS
            && !losses::is_section(section)
    };
    let sections = defined.maps.keys().filter(is_open);
    let variables = sections.flat_map(|section| {
        let variables = defined.btf.section_variables(section).into_iter();
        variables.map(|variable| (section.clone(), variable))
    });
    variables
        .filter(|(_, variable)| !variable.name.starts_with(OWN))
        .collect()
}

fn set_one(defined: &mut Definitions, name: &str, value: &Value) -> Result<(), String> {
    let known = variables(defined);
    let mut named = known.iter().filter(|(_, variable)| variable.name == name);
    let (section, variable) = match (named.next(), named.next()) {
        (Some(only), None) => only,
        (Some(_), Some(_)) => {
            return Err(format!(
                "there are several variables {name}; give them different names"
            ));
        }
        (None, _) => {
            let names: Vec<&str> = known
                .iter()
                .map(|(_, variable)| variable.name.as_str())
                .take(LISTED)
                .collect();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(format!("there is no variable {name}; there are {names}"));
        }
    };
    let layout = defined
        .btf
        .layout(variable.type_id)
        .map_err(|error| error.to_string())?;
    let spec = defined
        .maps
        .get_mut(section)
        .ok_or("its section is not there")?;
    let mut initial = spec.initial.clone();
    // A section of zeros has no content in the object.
    initial.resize(spec.value_size as usize, 0);
    let bytes = initial.get_mut(variable.offset..variable.offset + variable.size);
    write(&layout, value, bytes.ok_or("it is beyond its section")?)?;
    let is_zero = initial.iter().all(|byte| *byte == 0) && spec.initial.is_empty();
    if !is_zero {
        spec.initial = initial;
    }
    Ok(())
}
