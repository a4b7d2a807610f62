/* The C library's list of functions that only warn, which its headers ask for on machines of 32 bits, as BPF seems to be. */
