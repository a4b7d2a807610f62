/* A header of the kernel that sources for BCC include, and that has nothing for probes beyond what the dialect brings. */
