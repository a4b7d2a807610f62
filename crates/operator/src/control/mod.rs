//! The operator: it turns objects into assignments for nodes.

mod checked;
pub mod compile;
mod leader;
pub mod people;
pub mod reconcile;
mod revisions;
mod rules;
pub mod run;
mod webhook;
mod world;
pub mod writes;
