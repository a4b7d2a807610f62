//! Programs that others wrote, or might have written: they run unchanged.

mod fill;
mod objects;
mod scene;
mod sources;
