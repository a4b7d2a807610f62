//! A daemon is killed at random instants and at each step; its successor finds what the API says.

mod at_random;
mod at_steps;
mod windows;
