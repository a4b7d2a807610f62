//! Who may do what, and what is promised against those who may not.

mod compiler;
mod cost;
mod privileges;
mod sources;
mod systemd;
