//! The kinds of the API group `twinprobe.dev/v1alpha1`. Their documents are those of the crate
//! `api`.

#![expect(
    clippy::duplicated_attributes,
    reason = "columns of one type look like the same attribute twice"
)]

pub mod definitions;
pub mod nodes;
pub mod probe;
pub mod rule;
