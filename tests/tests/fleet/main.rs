//! The objects of a fleet in a real API server. `make test-fleet` builds the server and runs these
//! tests.

mod agents;
mod attacks;
mod chaos;
mod compiled;
mod judged;
mod objects;
mod overview;
mod pages;
mod pods;
mod policies;
mod rollouts;
mod rules;
mod scale;
mod scene;
mod streams;
mod upgrade;
