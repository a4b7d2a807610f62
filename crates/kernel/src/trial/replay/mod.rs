//! Replays: a loaded program is run on captured packets, with the time of the capture as its clock.

pub mod clock;
pub mod control;
mod driver;
pub mod lane;
mod tap;
