//! Traffic at millions of packets per second from the kernel itself, counted to the packet.
//!
//! The generator is an XDP program run on live frames (`BPF_PROG_TEST_RUN`): each run gives the
//! frame the next source address and port of a [`Spread`] and redirects it to an interface.
//! [`PacedSender`] sends the same frames by a socket.

mod frame;
mod generator;
mod paced;
mod running;
mod socket;
mod way;

pub use frame::{Frame, FrameOptions, Protocol};
pub use generator::{DEFAULT_BATCH, Generator, GeneratorOptions, MAX_BATCH, Meter, Spread};
pub use paced::PacedSender;
pub use running::{Load, Running};
pub use socket::PacketSocket;
pub use way::{LossyWay, Passed, WayLosses};
