//! Refusals, and advice about what to write instead.

pub mod advice;
pub mod excerpt;
pub mod hint;
pub mod problem;
