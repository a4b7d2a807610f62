//! Attachment of probes: beside other owners' programs, in their order, on interfaces that come and
//! go, in other namespaces.

mod attachments;
mod chains;
mod coexistence;
mod expedited;
mod interfaces;
mod large_frames;
mod namespaces;
mod per_interface;
mod pods;
mod reattachment;
mod samples;
mod sharing;
