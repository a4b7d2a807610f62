//! TODO by its owner.
