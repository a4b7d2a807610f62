//! Rules that run in the daemon: they judge each window once, and take their actions once, over all
//! kills.

mod budgets;
mod changes;
mod crashes;
mod equal;
mod library;
mod notifications;
mod random;
mod ready;
mod refusals;
mod revisions;
mod running;
mod scene;
mod signatures;
mod templates;
mod trials;
mod values;
