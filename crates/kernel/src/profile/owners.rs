//! The owners of addresses in the kernel: the machine code of eBPF programs.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;

use crate::sys::object::{self, ObjectKind};
use crate::sys::prog;

/// The addresses of the machine code of programs.
#[derive(Debug, Default)]
pub struct Owners {
    /// The functions by their start: the end of each function, and the id of its program.
    functions: BTreeMap<u64, (u64, u32)>,
}

impl Owners {
    /// Looks up these programs. Leaves out programs that have ended, and all programs if the kernel
    /// shows no addresses (without CAP_SYSLOG, or with `kptr_restrict` 2).
    pub fn of(programs: impl IntoIterator<Item = u32>) -> io::Result<Self> {
        let mut owners = Self::default();
        for id in programs {
            let Some(program) = object::fd_by_id(ObjectKind::Program, id)? else {
                continue;
            };
            for function in prog::prog_functions(program.as_fd())? {
                owners.functions.insert(function.start, (function.end, id));
            }
        }
        Ok(owners)
    }

    /// Returns the first known program in a stack of addresses, innermost first. Functions that a
    /// program calls belong to the program.
    pub fn of_stack(&self, stack: impl IntoIterator<Item = u64>) -> Option<u32> {
        stack.into_iter().find_map(|address| {
            let (_, (end, id)) = self.functions.range(..=address).next_back()?;
            (address < *end).then_some(*id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_program_owns_a_stack() {
        let functions = BTreeMap::from([(100, (150, 1)), (150, (160, 2)), (300, (400, 1))]);
        let owners = Owners { functions };
        for (stack, owner) in [
            (&[120, 155][..], Some(1)),
            (&[900, 99, 155, 120], Some(2)),
            (&[399], Some(1)),
            (&[160, 400, 99, 0, u64::MAX], None),
            (&[], None),
        ] {
            assert_eq!(owners.of_stack(stack.iter().copied()), owner, "{stack:?}");
        }
    }
}
