//! Raw map contents to documents: decode by layout, aggregate PERCPU values, encode. Pure: no IO, no kernel.
#![forbid(unsafe_code)]
