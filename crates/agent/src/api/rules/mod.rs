//! Handlers for rules and their templates.

pub mod rules;
pub mod templates;
