//! Programs that others wrote, or might have written: they run as they are.

mod fill;
mod objects;
mod scene;
mod sources;
