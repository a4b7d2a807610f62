//! A parser of the BPF Type Format.
