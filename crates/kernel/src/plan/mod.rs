//! The plan of a probe in the kernel, computed from its objects and its configuration alone: this
//! module does no IO and needs neither the kernel nor a privilege. The code that loads, reads and
//! shows a probe indexes its plan.

pub mod build;
pub mod draft;
pub mod elf;
pub mod footprint;
pub mod inherit;
pub mod map_spec;
pub mod metric;
pub mod object;
pub mod probe_plan;
pub mod request;
pub mod sees;
pub mod shape;
#[cfg(test)]
pub mod tests;
pub mod together;
