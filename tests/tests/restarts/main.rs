//! A daemon ends and the next one starts: what runs stays, what is damaged is repaired, what is gone comes back.

mod ends;
mod held;
mod repair;
mod restart;
mod restore;
mod start;
