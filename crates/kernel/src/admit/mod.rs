//! The admission of programs: proves the possible actions of a program from its instructions before
//! the load. This module does no IO and needs neither the kernel nor a privilege.
//!
//! | file | content |
//! |---|---|
//! | `admission` | the findings about a direction of a probe: its references, its maps, its program |
//! | `references` | the references to maps and functions that the source itself has written |
//! | `maps` | the types and flags of maps that a probe may have |
//! | `flow` | the data flow through a program, and the possible actions of its instructions |
//! | `verdicts` | the verdicts that a program can return, for the dispatcher |
//! | `work` | the work for one packet of programs with loops that the verifier does not follow to their end |
//! | `uses` | the maps and variables that metrics can read, and what the program does with them |
//! | `instruction`, `value`, `state`, `packet`, `helpers`, `functions` | the parts of the flow |

pub mod admission;
pub mod flow;
pub mod functions;
pub mod helpers;
pub mod instruction;
pub mod maps;
pub mod packet;
pub mod references;
pub mod state;
#[cfg(test)]
mod tests;
pub mod uses;
pub mod value;
pub mod verdicts;
pub mod work;
