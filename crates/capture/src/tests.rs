//! Captures as other programs write them, made by hand.
