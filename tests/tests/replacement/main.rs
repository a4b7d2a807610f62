//! Replacements of probes: packets, layouts, twins, sums.

mod layout_changes;
mod meanings;
mod nested;
mod sums;
mod sums_replaced;
mod sums_scene;
mod twin_changes;
mod without_a_gap;
