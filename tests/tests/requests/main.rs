//! Requests for probes: the API's answers, and the state that they leave.

mod certificates;
mod changes;
mod history;
mod hostile;
mod leases;
mod lifecycle;
mod nodes;
mod objects;
mod origins;
mod refusals;
mod remains;
mod revisions;
