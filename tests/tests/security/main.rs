//! What nobody may do, whoever they are.

mod compiler;
mod privileges;
mod sources;
mod systemd;
