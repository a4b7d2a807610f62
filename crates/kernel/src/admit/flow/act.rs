//! The acts of instructions that no monitor needs.

use crate::admit::instruction::Unknown;

/// The acts of instructions that no monitor does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It writes to the packet.
    WritesPacket,
    /// It writes to the context, which is the packet's metadata.
    WritesContext,
    /// It writes through a register that nothing was written to.
    WritesAnywhere,
    /// The program has an atomic operation on a value that is not aligned.
    Unaligned,
    /// It reads a structure of the kernel through a pointer to it.
    ReadsKernel,
    /// It reads the kernel's own structure of a map.
    ReadsMap,
    /// It stores what tells an address of the kernel where others see it.
    StoresAddress,
    /// It hands what tells an address of the kernel to a helper function that shows it.
    ShowsAddress(String),
    /// It returns what tells an address of the kernel.
    ReturnsAddress,
    /// It adds entries to a map while it goes through the map's entries.
    AddsToWalk(String),
    /// It starts a timer in a function that a timer calls.
    StartsAgain,
    /// It lets a helper function write to the packet.
    HasPacketWritten(String),
    /// It calls a helper function that changes packets.
    CallsChange(String),
    /// It calls a helper function that no monitor needs.
    CallsHelper(u32),
    /// It calls a helper function for timers.
    CallsTimer(String),
    /// It has a function called that is not known here.
    CallsBackAnything,
    Unknown(Unknown),
    /// With the loop here, the program may run this many instructions or more for one packet.
    WorksLong(u64),
    /// Calls lead too deep here.
    TooDeep,
    /// The program is too long to be followed.
    TooLong,
}
