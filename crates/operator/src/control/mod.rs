//! The operator: what objects ask for becomes what nodes are told.

mod checked;
mod leader;
pub mod people;
pub mod reconcile;
pub mod run;
mod webhook;
mod world;
