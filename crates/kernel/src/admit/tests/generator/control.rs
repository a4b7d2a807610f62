//! Branches, loops and calls of random programs.

use super::*;

impl Generator<'_> {
    /// Makes a block of instructions that runs on only one of two paths.
    pub(super) fn branch(&mut self, depth: usize) {
        let number = self.number();
        let at = self.code.len();
        self.emit([exit()]);
        let (registers, slots) = (self.registers, self.slots);
        for _ in 0..1 + self.random.below(4) {
            self.step(depth + 1);
        }
        let bit = 1 << self.random.below(3);
        self.code[at] = jump_set(number, bit, (self.code.len() - at - 1) as i16);
        let either = |one: Holds, other: Holds| match (one, other) {
            (Holds::Pointer(one), Holds::Pointer(other)) => Holds::Pointer(one.max(other)),
            (Holds::Number, Holds::Number) => Holds::Number,
            _ => Holds::Nothing,
        };
        for (holds, before) in self
            .registers
            .iter_mut()
            .zip(registers)
            .chain(self.slots.iter_mut().zip(slots))
        {
            *holds = either(*holds, before);
        }
    }

    /// Makes a loop whose body exchanges pointers.
    pub(super) fn repeat(&mut self) {
        // R0 is the loop's counter, because nothing in the loop calls a function.
        let begin = {
            self.emit([mov_imm(0, 3)]);
            self.code.len()
        };
        for _ in 0..2 + self.random.below(4) {
            let pointers = self.holding(|holds| matches!(holds, Holds::Pointer(_)));
            let (Some(one), Some(other)) =
                (self.random.pick(&pointers), self.random.pick(&pointers))
            else {
                continue;
            };
            let furthest = self.registers[usize::from(one)];
            let index = self.random.below(SLOTS);
            match self.random.below(4) {
                0 if self.registers[usize::from(other)] == furthest => self.emit([mov(one, other)]),
                1 if self.slots[index] == furthest => {
                    self.emit([
                        load(8, 1, 10, slot(index)),
                        store(8, 10, slot(index), one),
                        mov(one, 1),
                    ]);
                }
                2 if self.stores > 0 => {
                    self.stores -= 1;
                    let number = self.random.next() as i32;
                    self.emit([store_number(1, one, 0, number)]);
                }
                _ => self.emit([load(1, 1, one, 0)]),
            }
        }
        let back = -((self.code.len() - begin) as i16) - 2;
        self.emit([add_imm(0, -1), raw(0x55, 0, 0, back, 0)]);
    }

    pub(super) fn call(&mut self) {
        let subprogram = SUBPROGRAMS[self.random.below(4)];
        match subprogram {
            Subprogram::Copies | Subprogram::CopiesBack => {
                if self.stores == 0 {
                    return;
                }
                let (Some((one, _)), Some((other, _))) = (self.pointer(), self.pointer()) else {
                    return;
                };
                self.stores -= 1;
                self.emit([mov(1, one), mov(2, other)]);
            }
            Subprogram::Puts => {
                let Some((pointer, offset)) = self.pointer() else {
                    return;
                };
                let index = self.random.below(SLOTS);
                self.emit([
                    mov(1, 10),
                    add_imm(1, i32::from(slot(index))),
                    mov(2, pointer),
                ]);
                self.slots[index] = Holds::Pointer(offset);
            }
            _ => {
                let (one, other) = (self.random.below(SLOTS), self.random.below(SLOTS));
                self.emit([mov(1, 10), add_imm(1, i32::from(slot(one)))]);
                self.emit([mov(2, 10), add_imm(2, i32::from(slot(other)))]);
                self.slots.swap(one, other);
            }
        }
        self.calls.push((self.code.len(), subprogram, false));
        self.emit([exit()]);
        self.called();
    }

    /// Lets `bpf_loop` call a function.
    pub(super) fn call_back(&mut self) {
        let writes = self.stores > 0 && self.random.one_in(3);
        let subprogram = if writes {
            Subprogram::WritesThrough
        } else {
            Subprogram::TurnsRound
        };
        self.stores -= usize::from(writes);
        if self.slots[..3]
            .iter()
            .any(|holds| !matches!(holds, Holds::Pointer(_)))
        {
            return;
        }
        let rounds = 1 + self.random.below(3) as i32;
        self.emit([mov_imm(1, rounds)]);
        self.calls.push((self.code.len(), subprogram, true));
        self.emit(load_function(2, 0));
        self.emit([
            mov(3, 10),
            add_imm(3, i32::from(slot(0))),
            mov_imm(4, 0),
            call_helper(181),
        ]);
        self.called();
        if !writes {
            let furthest = self.slots[..3].iter().map(|holds| match holds {
                Holds::Pointer(offset) => *offset,
                _ => 0,
            });
            let furthest = furthest.max().unwrap_or(0);
            self.slots[..3].fill(Holds::Pointer(furthest));
        }
    }
}
