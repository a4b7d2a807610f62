/* Empty. The C library's headers include their list of stub functions on 32-bit machines, and BPF looks like one. */
