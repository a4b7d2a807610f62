//! What deploy/ and examples/ have, run by the tools that it is made for.

mod chart;
mod collector;
mod folder;
mod image;
mod package;
mod prometheus;
mod tools;
