mod extraction;
mod inheritance;
mod objects;
mod refusals;
mod scene;
mod twins;
