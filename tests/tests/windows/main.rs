//! Windows: closed by requests and by the clock, retained, collected, and never lost.

mod api;
mod broken_store;
mod client;
mod clock_steps;
mod concurrency;
mod damage;
mod disk;
mod echo;
mod exact;
mod grace_period;
mod retention;
mod scene;
mod schedule;
mod several;
