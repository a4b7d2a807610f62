//! Crashes: a daemon is killed at random instants and at each step, and the next one agrees with
//! the API's answers.

mod at_random;
mod at_steps;
mod windows;
