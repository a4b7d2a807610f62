/* Loads by the legacy instructions BPF_ABS and BPF_IND at TC. If the packet is too short, the program returns 0. */
#ifndef TWINPROBE_BPF_LEGACY_H
#define TWINPROBE_BPF_LEGACY_H

unsigned long long load_byte(void *packet, unsigned long long offset) asm("llvm.bpf.load.byte");
unsigned long long load_half(void *packet, unsigned long long offset) asm("llvm.bpf.load.half");
unsigned long long load_word(void *packet, unsigned long long offset) asm("llvm.bpf.load.word");

#endif
