//! What the API answers to requests for probes, and what they leave behind.

mod hostile;
mod lifecycle;
mod refusals;
mod revisions;
