//! Maps: every packet is counted once and in one window, with any map and at any hook.

mod consistency;
mod exactness;
mod first;
mod globals;
mod init;
mod init_scene;
mod kinds;
mod little_power;
mod losses;
mod nested;
mod scene;
mod shared;
