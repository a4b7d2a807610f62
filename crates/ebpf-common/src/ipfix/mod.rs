//! Information elements of IPFIX, which the tag `ie("name")` of a field names.

pub mod element;
pub mod registry;
