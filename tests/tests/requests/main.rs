//! Requests for probes: the API's answers, and the state that they leave.

mod hostile;
mod lifecycle;
mod refusals;
mod revisions;
