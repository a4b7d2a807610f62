//! What must work on every kernel: `make test-kernels` runs this binary on several.

mod every_kernel;
mod scene;
