//! The tables of programs of a source: the function in each slot.

use twinprobe_ebpf_common::finding::{Finding, Stage};

use crate::bcc::entry;
use crate::bcc::scan::{Function, Scan};
use twinprobe_ebpf_common::unit::Unit;

/// The type of a table of programs.
const PROGRAMS: &str = "prog";

/// Refuses `calls` beside a source that is not for BCC.
pub fn refused_for_libbpf(unit: &Unit<'_>) -> Option<Finding> {
    let (table, _) = unit.calls.first_key_value()?;
    let message = "calls is for the dialect bcc, and this source places its program in a section; leave calls out, and call the \
                   function itself";
    Some(refusal(unit, table, message.to_owned()))
}

/// Returns the macros that tell the dialect's headers which functions `call()` of each table leads
/// to; none if the configuration has no `calls`. `first` is the entry point.
pub fn definitions(
    unit: &Unit<'_>,
    found: &Scan<'_>,
    first: &Function<'_>,
) -> Result<Vec<String>, Finding> {
    if unit.calls.is_empty() {
        return Ok(Vec::new());
    }
    let refuse = |table: &str, message| Err(refusal(unit, table, message));
    let mut programs = vec![first];
    let mut definitions = Vec::new();
    for (table, slots) in unit.calls {
        if !found.tables.contains(&(table, PROGRAMS)) {
            return refuse(table, unknown_table(found, table));
        }
        let mut code = String::new();
        for (slot, name) in slots {
            let Some(function) = found
                .functions
                .iter()
                .find(|function| function.name == name)
            else {
                return refuse(
                    table,
                    format!("the source defines no function {name}, which slot {slot} must have"),
                );
            };
            if function.name != first.name && function.parameters.len() != 1 {
                let message = format!(
                    "slot {slot} must have {name}, which takes {} parameters; a function in a table has one, the context",
                    function.parameters.len()
                );
                return refuse(table, message);
            }
            entry::check_hook(function, unit.hook, unit.field)?;
            let known = programs
                .iter()
                .position(|known| known.name == function.name);
            let number = known.unwrap_or_else(|| {
                programs.push(function);
                programs.len() - 1
            });
            code.push_str(&format!(" TBCC_SLOT({slot}, {number})"));
        }
        definitions.push(format!("TWINPROBE_CALLS_{table}=~,1,{code}"));
    }
    definitions.push(program_list(&programs));
    Ok(definitions)
}

/// Returns the message about a table that the source does not define, with the tables that it
/// defines.
fn unknown_table(found: &Scan<'_>, table: &str) -> String {
    let tables = found
        .tables
        .iter()
        .filter(|(_, kind)| *kind == PROGRAMS)
        .map(|(name, _)| *name);
    let tables: Vec<&str> = tables.collect();
    let known = if tables.is_empty() {
        "none".to_owned()
    } else {
        tables.join(", ")
    };
    format!(
        "the source defines no table of programs {table} (BPF_PROG_ARRAY, BPF_TABLE(\"prog\", ...)); it has {known}"
    )
}

/// Returns the macro with the number, the name and the context of each program but the first, which
/// is the entry point.
fn program_list(programs: &[&Function<'_>]) -> String {
    let others = programs
        .iter()
        .enumerate()
        .skip(1)
        .map(|(number, function)| {
            let context = function
                .context()
                .map_or_else(|| "void".to_owned(), |context| format!("struct {context}"));
            format!(" X({number}, {}, {context})", function.name)
        });
    format!("TWINPROBE_PROGRAMS(X)={}", others.collect::<String>())
}

/// Makes the finding about a table in `calls`.
fn refusal(unit: &Unit<'_>, table: &str, message: String) -> Finding {
    let direction = unit.field.split('.').next().unwrap_or_default();
    Finding::new(
        Stage::Compile,
        format!("{direction}.calls.{table}"),
        message,
    )
}
