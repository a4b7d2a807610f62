//! Three nodes, one stream, one broker: everything is killed, cut off, filled, renewed and replaced
//! at random moments.

mod exact;
mod site;
mod strikes;
