//! Rules that run in the daemon: they judge each window once, and take their actions once, whatever is killed.

mod crashes;
mod refusals;
mod running;
mod scene;
