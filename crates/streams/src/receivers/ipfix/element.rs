//! Information elements: IANA's elements, and our elements, which type records describe (RFC 5610).

use std::collections::HashMap;

/// The enterprise number that IANA has reserved for examples (RFC 5612). A site that has a number
/// of its own sets it in the configuration.
pub const EXAMPLE_ENTERPRISE: u32 = 32473;
/// The enterprise number of elements for the other direction of a conversation (RFC 5103).
pub const REVERSE: u32 = 29305;
/// The length in templates for elements whose length is in each record.
pub const VARIABLE: u16 = 65535;
/// The first number of elements for fields. The numbers below it belong to [`Own`].
const FIRST_OF_FIELDS: u16 = 1024;
/// The number of possible element numbers, which have 15 bits.
const NUMBERS: u16 = 0x8000;

/// An abstract type, with its length in records (RFC 7012, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// The number of octets; any number of them if `None`.
    Octets(Option<u16>),
    Unsigned8,
    Unsigned16,
    Unsigned32,
    Unsigned64,
    Signed8,
    Signed16,
    Signed32,
    Signed64,
    Float32,
    Float64,
    Boolean,
    Mac,
    Text,
    Milliseconds,
    Nanoseconds,
    Ipv4,
    Ipv6,
}

/// An element as a template names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// The number of the enterprise; `None` for IANA's elements.
    pub enterprise: Option<u32>,
    pub number: u16,
    pub kind: ElementType,
}

/// The meaning of a number, in IANA's registry of semantics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementSemantics {
    #[default]
    Default = 0,
    Quantity = 1,
    TotalCounter = 2,
    DeltaCounter = 3,
    Identifier = 4,
    Flags = 5,
}

/// The content of a type record about one of our elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementInfo {
    pub element: Element,
    pub name: String,
    pub semantics: ElementSemantics,
    /// The number of the unit in IANA's registry.
    pub unit: u16,
    pub description: String,
}

/// The elements that identify windows. Their numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    Node = 1,
    Probe = 2,
    Instance = 3,
    WindowSequence = 4,
    WindowStart = 5,
    WindowEnd = 6,
    Metric = 7,
    Cpu = 8,
    Rest = 9,
    WindowRecords = 10,
    WindowsLost = 11,
    FieldsOmitted = 12,
    GapLast = 13,
    GapWindows = 14,
    Interfaces = 15,
    Approximate = 16,
}

/// The elements that a session has used, with their descriptions.
#[derive(Clone, Debug)]
pub struct ElementRegistry {
    enterprise: u32,
    /// The numbers of our elements, by their names.
    known: HashMap<String, ElementInfo>,
    /// The names of elements with these numbers.
    numbers: HashMap<u16, String>,
    /// The elements that no type record has described yet.
    untold: Vec<ElementInfo>,
}

impl ElementType {
    /// Returns the number in IANA's registry of data types.
    pub const fn code(self) -> u8 {
        match self {
            Self::Octets(_) => 0,
            Self::Unsigned8 => 1,
            Self::Unsigned16 => 2,
            Self::Unsigned32 => 3,
            Self::Unsigned64 => 4,
            Self::Signed8 => 5,
            Self::Signed16 => 6,
            Self::Signed32 => 7,
            Self::Signed64 => 8,
            Self::Float32 => 9,
            Self::Float64 => 10,
            Self::Boolean => 11,
            Self::Mac => 12,
            Self::Text => 13,
            Self::Milliseconds => 15,
            Self::Nanoseconds => 17,
            Self::Ipv4 => 18,
            Self::Ipv6 => 19,
        }
    }

    /// Returns the length in a template.
    pub const fn length(self) -> u16 {
        match self {
            Self::Octets(None) | Self::Text => VARIABLE,
            Self::Octets(Some(length)) => length,
            Self::Unsigned8 | Self::Signed8 | Self::Boolean => 1,
            Self::Unsigned16 | Self::Signed16 => 2,
            Self::Unsigned32 | Self::Signed32 | Self::Float32 | Self::Ipv4 => 4,
            Self::Unsigned64
            | Self::Signed64
            | Self::Float64
            | Self::Milliseconds
            | Self::Nanoseconds => 8,
            Self::Mac => 6,
            Self::Ipv6 => 16,
        }
    }

    /// Returns the smallest type for integers of this number of bits.
    pub const fn integer(bits: u32, signed: bool) -> Self {
        match (bits, signed) {
            (..=8, false) => Self::Unsigned8,
            (..=16, false) => Self::Unsigned16,
            (..=32, false) => Self::Unsigned32,
            (_, false) => Self::Unsigned64,
            (..=8, true) => Self::Signed8,
            (..=16, true) => Self::Signed16,
            (..=32, true) => Self::Signed32,
            (_, true) => Self::Signed64,
        }
    }
}

impl Element {
    /// Makes an element of IANA's registry.
    pub const fn iana(number: u16, kind: ElementType) -> Self {
        Self {
            enterprise: None,
            number,
            kind,
        }
    }
}

impl Own {
    /// Returns the name, the type and the description. No such element has a unit.
    const fn facts(self) -> (&'static str, ElementType, &'static str) {
        use ElementType::{Nanoseconds, Text, Unsigned32, Unsigned64};
        match self {
            Self::Node => ("node", Text, "Name of the node"),
            Self::Probe => ("probe", Text, "Name of the probe"),
            Self::Instance => (
                "instance",
                Text,
                "Life of the probe, from its creation to its removal",
            ),
            Self::WindowSequence => (
                "windowSequence",
                Unsigned64,
                "Number of the window, or of the first of a gap",
            ),
            Self::WindowStart => ("windowStart", Nanoseconds, "Start of the window"),
            Self::WindowEnd => ("windowEnd", Nanoseconds, "End of the window"),
            Self::Metric => ("metric", Text, "Name of the metric that has the entry"),
            Self::Cpu => ("cpu", Unsigned32, "CPU whose value this is"),
            Self::Rest => (
                "rest",
                Text,
                "The entry in JSON; another field can't hold its part of it",
            ),
            Self::WindowRecords => (
                "windowRecords",
                Unsigned64,
                "Records of entries that the window has",
            ),
            Self::WindowsLost => (
                "windowsLost",
                Unsigned64,
                "Windows before this one that could not be read",
            ),
            Self::FieldsOmitted => (
                "fieldsOmitted",
                Unsigned64,
                "Fields of the window too long for a message",
            ),
            Self::GapLast => ("gapLast", Unsigned64, "Number of the last window of a gap"),
            Self::GapWindows => (
                "gapWindows",
                Unsigned64,
                "Windows in a gap: removed before they were sent",
            ),
            Self::Interfaces => (
                "interfaces",
                Text,
                "Interfaces that the probe watches, in JSON",
            ),
            Self::Approximate => (
                "approximate",
                Text,
                "Why numbers are not exact; empty if they are",
            ),
        }
    }
}

impl ElementRegistry {
    pub fn new(enterprise: u32) -> Self {
        Self {
            enterprise,
            known: HashMap::new(),
            numbers: HashMap::new(),
            untold: Vec::new(),
        }
    }

    /// Returns one of the elements that every window has.
    pub fn own(&mut self, own: Own) -> Element {
        let (name, kind, description) = own.facts();
        let element = Element {
            enterprise: Some(self.enterprise),
            number: own as u16,
            kind,
        };
        if !self.known.contains_key(name) {
            let semantics = match own {
                Own::WindowSequence | Own::GapLast => ElementSemantics::Identifier,
                Own::WindowRecords | Own::WindowsLost | Own::FieldsOmitted | Own::GapWindows => {
                    ElementSemantics::Quantity
                }
                _ => ElementSemantics::Default,
            };
            self.add(ElementInfo {
                element,
                name: name.to_owned(),
                semantics,
                unit: unit(None),
                description: description.to_owned(),
            });
        }
        element
    }

    /// Returns the element for a field. The element's number follows from the field's name, so that
    /// it is the same in each session. If two names give the same number, the second name gets the
    /// next number.
    pub fn field(
        &mut self,
        name: &str,
        kind: ElementType,
        semantics: ElementSemantics,
        unit: u16,
        description: &str,
    ) -> Element {
        // All fields of one name have the same type. For a field of another type, the name of the
        // element contains that type.
        let name = match self.known.get(name) {
            Some(known) if known.element.kind != kind => format!("{name}.{}", typed(kind)),
            _ => name.to_owned(),
        };
        if let Some(known) = self.known.get(&name) {
            return known.element;
        }
        let span = NUMBERS - FIRST_OF_FIELDS;
        let mut number = FIRST_OF_FIELDS + (hash(&name) % u32::from(span)) as u16;
        while self.numbers.contains_key(&number) {
            number = if number + 1 < NUMBERS {
                number + 1
            } else {
                FIRST_OF_FIELDS
            };
        }
        let element = Element {
            enterprise: Some(self.enterprise),
            number,
            kind,
        };
        self.add(ElementInfo {
            element,
            name,
            semantics,
            unit,
            description: description.to_owned(),
        });
        element
    }

    /// Returns the name of one of our elements.
    pub fn name(&self, element: Element) -> Option<&str> {
        let number = (element.enterprise == Some(self.enterprise)).then_some(element.number)?;
        self.numbers.get(&number).map(String::as_str)
    }

    /// Returns the elements that have no type record so far, and forgets them.
    pub fn take_untold(&mut self) -> Vec<ElementInfo> {
        std::mem::take(&mut self.untold)
    }

    /// Returns all elements, by their numbers.
    pub fn all(&self) -> Vec<ElementInfo> {
        let mut all: Vec<ElementInfo> = self.known.values().cloned().collect();
        all.sort_by_key(|info| info.element.number);
        all
    }

    /// Tells whether too few numbers are left for the fields of one more window.
    pub fn is_full(&self) -> bool {
        self.numbers.len() > usize::from(NUMBERS) / 2
    }

    fn add(&mut self, info: ElementInfo) {
        self.numbers.insert(info.element.number, info.name.clone());
        self.untold.push(info.clone());
        self.known.insert(info.name.clone(), info);
    }
}

fn typed(kind: ElementType) -> String {
    match kind {
        ElementType::Octets(Some(length)) => format!("octets{length}"),
        kind => format!("type{}", kind.code()),
    }
}

/// The hash FNV-1a, which is the same on each machine and in each version.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Returns the number of a unit in IANA's registry; 0 for a unit that is not in it.
pub fn unit(name: Option<&str>) -> u16 {
    match name {
        Some("bytes") => 2,
        Some("packets") => 3,
        Some("seconds") => 5,
        Some("milliseconds") => 6,
        Some("microseconds") => 7,
        Some("nanoseconds") => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
