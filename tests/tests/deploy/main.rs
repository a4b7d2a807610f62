//! Tests of deploy/ and examples/ by the tools that these are made for.

mod chart;
mod collector;
mod folder;
mod image;
mod package;
mod prometheus;
mod tools;
mod whole;
