//! What a compiled source says of itself: its entry point, its maps and their types. Everything here is
//! computed from the object alone; kernel objects are made in [`super::loader`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aya_obj::btf::BtfFeatures;
use aya_obj::generated::bpf_map_type;
use aya_obj::{EbpfSectionKind, Function, Object, ProgramSection};
use twinprobe_ebpf_common::{Btf, Layout, MapKind, MapTypes, TableLayout};

use crate::plan::elf;
use crate::plan::inner_maps::{self, Slots};
use crate::sys::cpus;
use twinprobe_ebpf_common::hook::ProgramKind;

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Elf(#[from] elf::ElfError),
    #[error("the object can't be parsed")]
    Parse(#[from] aya_obj::ParseError),
    #[error("the object's references between maps can't be read")]
    InnerMaps(#[from] object::read::Error),
    #[error("the object's type information can't be used")]
    Btf(#[from] aya_obj::btf::BtfError),
    #[error("the object's type information can't be read")]
    OwnBtf(#[from] twinprobe_ebpf_common::BtfError),
    #[error("the source's CO-RE relocations do not fit this kernel")]
    Core(#[from] aya_obj::btf::BtfRelocationError),
    #[error("a reference in the object leads nowhere")]
    Relocation(#[from] aya_obj::relocation::EbpfRelocationError),
    #[error("the object is damaged in a way that its parser does not survive")]
    Panic,
    #[error("no entry point: the source needs one program in SEC(\"{section}\"){others}")]
    NoEntry { section: &'static str, others: String },
    #[error(
        "{} entry points: {}; the source needs exactly one program in SEC(\"{section}\") per direction",
        names.len(),
        names.join(", ")
    )]
    ManyEntries { section: &'static str, names: Vec<String> },
}

/// A map as the source defines it.
#[derive(Clone, Debug)]
pub struct MapSpec {
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub flags: u32,
    pub extra: u64,
    /// Type ids of key and value in the object's BTF; 0 where unknown.
    pub btf_types: (u32, u32),
    /// The initial content of `.data`, `.rodata`; empty for `.bss` and for ordinary maps.
    pub initial: Vec<u8>,
    pub frozen: bool,
    /// For maps of maps: what the maps in it are,
    pub inner: Option<Box<MapSpec>>,
    /// and which of the source's maps are in it from the start, by slot.
    pub slots: BTreeMap<u32, String>,
}

/// A parsed object, ready to be bound to maps and loaded any number of times.
pub struct ProbeObject {
    object: Object,
    btf: Btf,
    btf_blob: Vec<u8>,
    entry: String,
    maps: BTreeMap<String, MapSpec>,
    warnings: Vec<String>,
}

impl ProbeObject {
    /// `features`: which BTF kinds the kernel takes.
    pub fn parse(elf: &[u8], kind: ProgramKind, features: &BtfFeatures) -> Result<Self, ObjectError> {
        let elf = elf::prepare(elf)?;
        let mut object = guarded(|| Object::parse(&elf))??;
        let entry = entry_point(&object, kind)?;
        guarded(|| object.fixup_and_sanitize_btf(features).map(drop))??;
        if object.has_btf_relocations() {
            let kernel = aya_obj::btf::Btf::from_sys_fs()?;
            guarded(|| object.relocate_btf(&kernel))??;
        }
        let btf_blob = object.btf.as_ref().ok_or(elf::ElfError::NoBtf)?.to_bytes();
        let btf = Btf::parse(&btf_blob)?;
        let mut warnings = Vec::new();
        let slots = inner_maps::slots(&elf, &btf)?;
        let maps = map_specs(&object, &btf, slots, &mut warnings)?;
        Ok(Self { object, btf, btf_blob, entry, maps, warnings })
    }

    pub fn entry(&self) -> &str {
        &self.entry
    }

    pub fn license(&self) -> &CStr {
        &self.object.license
    }

    pub fn btf_blob(&self) -> &[u8] {
        &self.btf_blob
    }

    pub const fn maps(&self) -> &BTreeMap<String, MapSpec> {
        &self.maps
    }

    pub const fn btf(&self) -> &Btf {
        &self.btf
    }

    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How to decode the map `name`, which is of `kind`. Without type information: as opaque bytes, and
    /// the reason why.
    pub fn table_layout(
        &self,
        name: &str,
        spec: &MapSpec,
        kind: MapKind,
        possible_cpus: usize,
    ) -> (TableLayout, Option<String>) {
        let mut doubts = Vec::new();
        let types = self.btf.map_definition(name).unwrap_or_default();
        let mut layout =
            self.layout_of(&format!("map {name}"), spec, types, kind, possible_cpus, &mut doubts);
        if let Some(inner) = spec.inner.as_deref()
            && let Some(kind) = MapKind::from_bpf_type(inner.map_type)
        {
            let types = self.btf.inner_map_definition(name).map(|inner| inner.types).unwrap_or_default();
            let what = format!("the maps in map {name}");
            let inner = self.layout_of(&what, inner, types, kind, possible_cpus, &mut doubts);
            layout.inner = Some(Arc::new(inner));
        }
        (layout, (!doubts.is_empty()).then(|| doubts.join("; ")))
    }

    fn layout_of(
        &self,
        what: &str,
        spec: &MapSpec,
        types: MapTypes,
        kind: MapKind,
        possible_cpus: usize,
        doubts: &mut Vec<String>,
    ) -> TableLayout {
        let mut layout = |part: &str, id: Option<u32>, size: u32| {
            let size = size as usize;
            let Some(id) = id else {
                doubts.push(format!("{what}: the {part} has no type (use __type), it is shown in hex"));
                return Layout::opaque(size);
            };
            match self.btf.layout(id) {
                Ok(layout) if layout.size == size => layout,
                Ok(layout) => {
                    doubts.push(format!(
                        "{what}: the type of the {part} has {} bytes, not {size}; it is shown in hex",
                        layout.size
                    ));
                    Layout::opaque(size)
                }
                Err(error) => {
                    doubts.push(format!("{what}: the {part} is shown in hex: {error}"));
                    Layout::opaque(size)
                }
            }
        };
        let key = if kind.has_keys() { layout("key", types.key, spec.key_size) } else { Layout::opaque(0) };
        let mut value = if kind.is_nested() {
            // The id of a map, which is shown as that map's content.
            Layout::unsigned(spec.value_size as usize)
        } else {
            layout("value", types.value, spec.value_size)
        };
        value.render = value.render.or(types.render);
        let slots = if kind.is_percpu() { possible_cpus } else { 1 };
        TableLayout { kind, key, value, slots, inner: None }
    }

    /// The entry program with every map reference bound to the descriptor that `fds` names.
    pub fn bind(&self, fds: &HashMap<&str, RawFd>) -> Result<Function, ObjectError> {
        let mut object = self.object.clone();
        let maps = std::mem::take(&mut object.maps);
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let bound: Vec<_> = maps
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), *fds.get(name.as_str())?, map)))
            .collect();
        guarded(|| object.relocate_maps(bound.into_iter(), &text))??;
        guarded(|| object.relocate_calls(&text))??;
        object.sanitize_functions(aya::features());
        let key = object.programs[&self.entry].function_key();
        object.functions.remove(&key).ok_or(ObjectError::Panic)
    }

    /// The file that BTF line information names at `offset` of its strings.
    pub fn file_name(&self, offset: u32) -> Option<&str> {
        let word = |at: usize| {
            let bytes = self.btf_blob.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let start = word(4)?.checked_add(word(16)?)?.checked_add(offset as usize)?;
        CStr::from_bytes_until_nul(self.btf_blob.get(start..)?).ok()?.to_str().ok()
    }
}

/// aya-obj can panic on an object it does not expect, and what clang writes is in the hands of the source
/// (inline assembly can emit any section).
fn guarded<T>(parse: impl FnOnce() -> T) -> Result<T, ObjectError> {
    catch_unwind(AssertUnwindSafe(parse)).map_err(|_| ObjectError::Panic)
}

fn entry_point(object: &Object, kind: ProgramKind) -> Result<String, ObjectError> {
    let section = kind.section();
    let fits = |program: &aya_obj::Program| match program.section {
        ProgramSection::Xdp { attach_type: aya_obj::programs::XdpAttachType::Interface, .. } => {
            kind == ProgramKind::Xdp
        }
        ProgramSection::SchedClassifier => kind == ProgramKind::Tc,
        _ => false,
    };
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for (name, program) in &object.programs {
        if fits(program) { names.push(name.clone()) } else { others.push(name.clone()) }
    }
    names.sort();
    others.sort();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 if others.is_empty() => Err(ObjectError::NoEntry { section, others: String::new() }),
        0 => {
            let others = format!("; {} belongs to another hook", others.join(", "));
            Err(ObjectError::NoEntry { section, others })
        }
        _ => Err(ObjectError::ManyEntries { section, names }),
    }
}

fn map_specs(
    object: &Object,
    btf: &Btf,
    mut slots: Slots,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, MapSpec>, ObjectError> {
    let mut specs = BTreeMap::new();
    for (name, map) in &object.maps {
        let types = btf.map_definition(name);
        let global = matches!(
            map.section_kind(),
            EbpfSectionKind::Bss | EbpfSectionKind::Data | EbpfSectionKind::Rodata
        );
        if map.pinning() != aya_obj::maps::PinningType::None {
            warnings.push(format!("map {name}: pinning is ignored; maps belong to their probe"));
        }
        let mut spec = spec_of(map);
        if let Some(types) = types {
            type_spec(&mut spec, types, btf)?;
        }
        if global {
            spec.initial =
                if map.section_kind() == EbpfSectionKind::Bss { Vec::new() } else { map.data().to_vec() };
            spec.frozen = map.section_kind() == EbpfSectionKind::Rodata;
        }
        if let Some(inner) = map.inner() {
            let mut inner = spec_of(&inner);
            if let Some(definition) = btf.inner_map_definition(name) {
                type_spec(&mut inner, definition.types, btf)?;
            }
            spec.inner = Some(Box::new(inner));
            spec.slots = slots.remove(name).unwrap_or_default();
        }
        specs.insert(name.clone(), spec);
    }
    Ok(specs)
}

/// aya-obj multiplies only the innermost dimension of an array type.
fn type_spec(spec: &mut MapSpec, types: MapTypes, btf: &Btf) -> Result<(), ObjectError> {
    if let Some(key) = types.key {
        spec.key_size = u32::try_from(btf.size_of(key)?).unwrap_or(u32::MAX);
    }
    if let Some(value) = types.value {
        spec.value_size = u32::try_from(btf.size_of(value)?).unwrap_or(u32::MAX);
    }
    spec.btf_types = (types.key.unwrap_or(0), types.value.unwrap_or(0));
    Ok(())
}

fn spec_of(map: &aya_obj::Map) -> MapSpec {
    let mut max_entries = map.max_entries();
    if map.map_type() == bpf_map_type::BPF_MAP_TYPE_PERF_EVENT_ARRAY as u32 && max_entries == 0 {
        max_entries = cpus::possible_cpus().unwrap_or(1) as u32;
    }
    MapSpec {
        map_type: map.map_type(),
        key_size: map.key_size(),
        value_size: map.value_size(),
        max_entries,
        flags: map.map_flags(),
        extra: map.map_extra(),
        btf_types: (0, 0),
        initial: Vec::new(),
        frozen: false,
        inner: None,
        slots: BTreeMap::new(),
    }
}
