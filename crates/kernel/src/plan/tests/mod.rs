mod extraction;
mod fill;
mod inheritance;
mod objects;
mod refusals;
pub mod scene;
mod shared;
mod twins;
