//! What an operator, a program and a stranger may do, and what they may not.

mod admission;
mod compiler;
mod cost;
mod privileges;
mod sources;
mod systemd;
