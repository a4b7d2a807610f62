//! BTF for the dispatcher's functions: the kernel allows tail calls only in subprograms that are known to
//! return an `int`.

use aya_obj::btf::{Btf, BtfParam, BtfType, Func, FuncLinkage, FuncProto, Int, IntEncoding, Ptr};

use crate::sys::prog::InfoRecords;

/// Bytes of `struct bpf_func_info`: instruction offset and type id.
const RECORD: usize = 8;

/// Types for a program of several functions, all `int f(void *ctx)`.
pub struct DebugInfo {
    pub btf: Vec<u8>,
    records: Vec<u8>,
}

impl DebugInfo {
    /// Makes the types for functions that begin at these instructions; the first is the program itself.
    pub fn new(functions: &[usize]) -> Self {
        let mut btf = Btf::new();
        let name = btf.add_string("int");
        let int = btf.add_type(BtfType::Int(Int::new(name, 4, IntEncoding::Signed, 0)));
        let context = btf.add_type(BtfType::Ptr(Ptr::new(0, 0)));
        let name_offset = btf.add_string("ctx");
        let parameter = BtfParam { name_offset, btf_type: context };
        let proto = btf.add_type(BtfType::FuncProto(FuncProto::new(vec![parameter], int)));
        let mut records = Vec::with_capacity(functions.len() * RECORD);
        for (index, start) in functions.iter().enumerate() {
            let name = if index == 0 { "dispatch".to_owned() } else { format!("probe_{index}") };
            let name = btf.add_string(&name);
            let function = btf.add_type(BtfType::Func(Func::new(name, proto, FuncLinkage::Static)));
            records.extend_from_slice(&(*start as u32).to_ne_bytes());
            records.extend_from_slice(&function.to_ne_bytes());
        }
        Self { btf: btf.to_bytes(), records }
    }

    pub fn records(&self) -> InfoRecords<'_> {
        InfoRecords {
            bytes: &self.records,
            record_size: RECORD as u32,
            count: (self.records.len() / RECORD) as u32,
        }
    }
}
