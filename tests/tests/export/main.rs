//! Answers to clients: documents, pages for Prometheus, events, results of the ready-made probes.

mod bcc;
mod bursts;
mod captures;
mod documents;
mod events;
mod families;
mod identity;
mod largest;
mod names;
mod pace;
mod probe_results;
mod probes;
mod prometheus;
mod prometheus_page;
mod replay;
mod replayed;
mod series;
mod tags;
mod wide;
