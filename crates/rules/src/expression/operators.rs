//! The arguments and results of CEL's operators and functions. The checker refuses all others.

use cel::common::ast::operators as cel;

use super::reading::Kind;

/// The arguments of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// Any number of operands, each of this kind.
    All(Kind),
    /// Two numbers, or two texts.
    Ordered,
    /// Two of one kind.
    Alike,
    /// A text, and another text in brackets after the operator's name.
    Texts,
}

/// Returns the operator's sign, the types of its operands and of its result.
pub fn operator(name: &str) -> Option<(&'static str, Operands, Kind)> {
    use Kind::{Boolean, Number};
    use Operands::{Alike, All, Ordered, Texts};
    Some(match name {
        cel::LOGICAL_AND => ("&&", All(Boolean), Boolean),
        cel::LOGICAL_OR => ("||", All(Boolean), Boolean),
        cel::LOGICAL_NOT => ("!", All(Boolean), Boolean),
        cel::ADD => ("+", All(Number), Number),
        cel::SUBSTRACT => ("-", All(Number), Number),
        cel::NEGATE => ("-", All(Number), Number),
        cel::MULTIPLY => ("*", All(Number), Number),
        cel::DIVIDE => ("/", All(Number), Number),
        cel::LESS => ("<", Ordered, Boolean),
        cel::LESS_EQUALS => ("<=", Ordered, Boolean),
        cel::GREATER => (">", Ordered, Boolean),
        cel::GREATER_EQUALS => (">=", Ordered, Boolean),
        cel::EQUALS => ("==", Alike, Boolean),
        cel::NOT_EQUALS => ("!=", Alike, Boolean),
        "startsWith" => ("startsWith", Texts, Boolean),
        "endsWith" => ("endsWith", Texts, Boolean),
        "contains" => ("contains", Texts, Boolean),
        _ => return None,
    })
}

impl Operands {
    /// Returns the mistake of these operands, if there is one. `target` is the value before the
    /// name of a method.
    pub fn fault(self, sign: &str, target: Option<Kind>, arguments: &[Kind]) -> Option<String> {
        let kinds: Vec<_> = target.iter().chain(arguments).copied().collect();
        let names = || {
            kinds
                .iter()
                .map(|kind| kind.name())
                .collect::<Vec<_>>()
                .join(" and ")
        };
        match self {
            Self::All(kind) if kinds.iter().any(|found| *found != kind) => {
                Some(format!("{sign} takes {}, not {}", kind.name(), names()))
            }
            Self::Ordered if kinds.contains(&Kind::Boolean) => {
                Some(format!("{sign} can't order {}", names()))
            }
            Self::Ordered | Self::Alike if kinds.windows(2).any(|two| two[0] != two[1]) => {
                Some(format!("{sign} compares two of one kind, not {}", names()))
            }
            Self::Texts if (target, arguments) != (Some(Kind::Text), &[Kind::Text]) => Some(
                format!("{sign} follows a text and takes one text: 'abc'.{sign}('a')"),
            ),
            _ => None,
        }
    }
}
