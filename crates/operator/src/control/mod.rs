//! The operator: what objects ask for becomes what nodes are told.

mod checked;
mod leader;
pub mod people;
pub mod reconcile;
mod rules;
pub mod run;
mod webhook;
mod world;
mod writes;
