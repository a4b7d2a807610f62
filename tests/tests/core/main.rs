//! Tests that must pass on every kernel: `make test-kernels` runs this binary on several.

mod bcc;
mod captures;
mod every_kernel;
mod header;
mod libxdp;
mod links;
mod lro;
mod samples;
mod scene;
mod tunnels;
