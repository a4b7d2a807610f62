//! The acts for which the admission may refuse a program.

use crate::admit::instruction::Unknown;

/// An act for which the admission may refuse a program, because a program that observes does not
/// need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The program writes to the packet.
    WritesPacket,
    /// The program writes to the context, which is the packet's metadata.
    WritesContext,
    /// The program writes through a register that has no value yet.
    WritesAnywhere,
    /// The program has an atomic operation on a value whose address is not a multiple of its size.
    Unaligned,
    /// The program reads a structure of the kernel through a pointer to it.
    ReadsKernel,
    /// The program reads the kernel's own structure of a map.
    ReadsMap,
    /// The program stores a value that reveals a kernel address in a place that others can read.
    StoresAddress,
    /// The program passes a value that reveals a kernel address to a helper function that shows it.
    ShowsAddress(String),
    /// The program returns a value that reveals a kernel address.
    ReturnsAddress,
    /// The program adds entries to a map while it iterates over the map.
    AddsToWalk(String),
    /// The program starts a timer in a function that a timer calls.
    StartsAgain,
    /// The program lets a helper function write to the packet.
    HasPacketWritten(String),
    /// The program calls a helper function that changes packets.
    CallsChange(String),
    /// The program calls a helper function that no monitor needs.
    CallsHelper(u32),
    /// The program calls a helper function for timers.
    CallsTimer(String),
    /// The program lets a helper function call a function that is not known here.
    CallsBackAnything,
    Unknown(Unknown),
    /// With this loop, the program may run this number of instructions or more for one packet.
    WorksLong(u64),
    /// Calls lead too deep here.
    TooDeep,
    /// The program is too long for the analysis.
    TooLong,
}
