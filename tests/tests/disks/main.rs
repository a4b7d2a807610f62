//! Disks: whatever happens to the disk of the state, clients find what they were told.

mod bed;
