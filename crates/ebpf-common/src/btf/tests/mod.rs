mod builder;
mod clang;
mod hand_built;
mod robustness;
