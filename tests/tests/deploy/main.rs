//! What deploy/ and examples/ have, run by the tools that it is made for.

mod chart;
mod folder;
mod package;
mod prometheus;
mod tools;
