//! Programs that others wrote, or might have written: they run unchanged.

mod elsewhere;
mod fill;
mod objects;
mod scene;
mod sources;
