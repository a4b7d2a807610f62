//! A transport session: the templates and types that its collector knows, and the records after
//! them.

use std::collections::HashMap;

use super::element::{Element, ElementInfo, ElementRegistry, ElementType};
use super::message::{Counted, MessageWriter};
use super::value::put_variable;
use crate::receiver::SendError;

const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The number of the template of type records: the first number that a template may have.
const TYPES: u16 = 256;
/// The longest text in a type record.
const DESCRIPTION: usize = 200;

/// The elements of a type record (RFC 5610, section 3.1). The first two elements are the scope.
const TYPE_RECORD: [Element; 7] = [
    Element::iana(346, ElementType::Unsigned32), // privateEnterpriseNumber
    Element::iana(303, ElementType::Unsigned16), // informationElementId
    Element::iana(339, ElementType::Unsigned8),  // informationElementDataType
    Element::iana(344, ElementType::Unsigned8),  // informationElementSemantics
    Element::iana(345, ElementType::Unsigned16), // informationElementUnits
    Element::iana(341, ElementType::Text),       // informationElementName
    Element::iana(340, ElementType::Text),       // informationElementDescription
];

/// The facts that all messages of a session share.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    pub enterprise: u32,
    /// The observation domain.
    pub domain: u32,
    /// The most octets of a message.
    pub limit: usize,
}

/// The elements of a record, in order. The first elements are the scope of a record of options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    pub scope: usize,
    pub elements: Vec<Element>,
}

/// The templates that the collector has got.
#[derive(Debug)]
pub struct CollectorSession {
    pub registry: ElementRegistry,
    writer: MessageWriter,
    templates: HashMap<Template, u16>,
    /// The sets and records that define the templates, in the order of their numbers.
    definitions: Vec<(u16, Vec<u8>)>,
}

impl CollectorSession {
    pub fn new(settings: SessionSettings) -> Self {
        let mut session = Self {
            registry: ElementRegistry::new(settings.enterprise),
            writer: MessageWriter::new(settings.limit, settings.domain),
            templates: HashMap::new(),
            definitions: Vec::new(),
        };
        session.define(
            Template {
                scope: 2,
                elements: TYPE_RECORD.to_vec(),
            },
            TYPES,
        );
        session
    }

    /// Returns the number of a template. A new template is sent after the type records of its
    /// elements.
    pub fn template(&mut self, template: Template) -> Result<u16, SendError> {
        if let Some(number) = self.templates.get(&template) {
            return Ok(*number);
        }
        let number = usize::from(TYPES) + self.definitions.len();
        let number = u16::try_from(number)
            .ok()
            .filter(|_| !self.registry.is_full())
            .ok_or_else(|| {
                SendError::new(
                    "the session has used all numbers of templates or elements; it begins anew",
                )
            })?;
        for info in self.registry.take_untold() {
            self.tell(&info);
        }
        self.define(template, number);
        Ok(number)
    }

    /// Adds a record of this template.
    pub fn record(&mut self, template: u16, record: &[u8]) {
        self.writer.add(template, record, Counted::Data);
    }

    /// The octets that a record may have to fit into a message.
    pub const fn room(&self) -> usize {
        self.writer.room()
    }

    /// Sends all templates and types again, for a collector that has lost them.
    pub fn repeat_templates(&mut self) {
        for (set, definition) in &self.definitions {
            self.writer.add(*set, definition, Counted::Template);
        }
        self.registry.take_untold();
        for info in self.registry.all() {
            self.tell(&info);
        }
    }

    /// Returns all finished messages.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.writer.take()
    }

    fn define(&mut self, template: Template, number: u16) {
        let mut definition = Vec::new();
        definition.extend(number.to_be_bytes());
        definition.extend((template.elements.len() as u16).to_be_bytes());
        let set = if template.scope > 0 {
            definition.extend((template.scope as u16).to_be_bytes());
            OPTIONS_TEMPLATES
        } else {
            TEMPLATES
        };
        for Element {
            enterprise,
            number,
            kind,
        } in &template.elements
        {
            // The highest bit says that the number of an enterprise follows.
            let bit = if enterprise.is_some() { 0x8000 } else { 0 };
            definition.extend((number | bit).to_be_bytes());
            definition.extend(kind.length().to_be_bytes());
            definition.extend(
                enterprise
                    .iter()
                    .flat_map(|enterprise| enterprise.to_be_bytes()),
            );
        }
        self.writer.add(set, &definition, Counted::Template);
        self.definitions.push((set, definition));
        self.templates.insert(template, number);
    }

    /// Adds the type record of one of our elements.
    fn tell(&mut self, info: &ElementInfo) {
        let ElementInfo {
            element,
            name,
            semantics,
            unit,
            description,
        } = info;
        let mut record = Vec::new();
        record.extend(element.enterprise.unwrap_or_default().to_be_bytes());
        record.extend(element.number.to_be_bytes());
        record.push(element.kind.code());
        record.push(*semantics as u8);
        record.extend(unit.to_be_bytes());
        put_variable(&mut record, short(name).as_bytes());
        put_variable(&mut record, short(description).as_bytes());
        self.writer.add(TYPES, &record, Counted::Data);
    }
}

/// Returns the beginning of a text, so that a type record fits into the smallest message.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(DESCRIPTION)]
}

#[cfg(test)]
mod tests {
    use super::super::element::{EXAMPLE_ENTERPRISE, Own};
    use super::*;

    #[test]
    fn a_template_is_sent_once_and_again_when_asked() {
        let settings = SessionSettings {
            enterprise: EXAMPLE_ENTERPRISE,
            domain: 0,
            limit: 512,
        };
        let mut session = CollectorSession::new(settings);
        let node = session.registry.own(Own::Node);
        let template = Template {
            scope: 0,
            elements: vec![node, Element::iana(2, ElementType::Unsigned64)],
        };
        let number = session.template(template.clone()).unwrap();
        assert_eq!(number, TYPES + 1);
        assert_eq!(session.template(template).unwrap(), number);
        let first: usize = session.take().iter().map(Vec::len).sum();
        assert!(session.take().is_empty());
        session.repeat_templates();
        let again: usize = session.take().iter().map(Vec::len).sum();
        // Sets have another order, so the number of set headers differs by one.
        assert!(first.abs_diff(again) <= 4, "{first} {again}");
    }
}
