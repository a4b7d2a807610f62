//! The roles of clients that have a certificate: one per line, `SAN ROLE`.

use std::collections::BTreeMap;

use crate::access::lines::{self, Mistake, check_name};
use crate::access::principal::{Principal, Who};
use crate::access::role::Role;

/// Roles by subject alternative name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRoles(BTreeMap<String, Role>);

impl ClientRoles {
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let mut roles = BTreeMap::new();
        lines::parse(text, |words| {
            let &[name, role] = words else { return Err("a line is SAN ROLE".to_owned()) };
            check_name(name)?;
            match roles.insert(name.to_owned(), lines::role(role)?) {
                Some(_) => Err("an earlier line has this name already".to_owned()),
                None => Ok(()),
            }
        })?;
        Ok(Self(roles))
    }

    /// Returns the owner of a certificate with these names: the name with the highest role, or the first name if no
    /// line has any of them. `None` if there is no name.
    pub fn owner(&self, names: &[String]) -> Option<Principal> {
        let known = names.iter().map(|name| (self.0.get(name).copied(), name));
        // The first of several names with one role is taken.
        let (role, name) = known.rev().max_by_key(|(role, _)| *role)?;
        Some(Principal { who: Who::Certificate(name.clone()), role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(roles: &ClientRoles, names: &[&str]) -> Option<Principal> {
        roles.owner(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_highest_role_of_a_certificate_counts() {
        let roles =
            ClientRoles::parse("a.example viewer\nspiffe://x/y admin # the deployer\n\n10.0.0.1 viewer")
                .unwrap();
        let who = |name: &str, role| Some(Principal { who: Who::Certificate(name.into()), role });
        assert_eq!(owner(&roles, &["a.example"]), who("a.example", Some(Role::Viewer)));
        assert_eq!(owner(&roles, &["a.example", "spiffe://x/y"]), who("spiffe://x/y", Some(Role::Admin)));
        assert_eq!(owner(&roles, &["10.0.0.1", "a.example"]), who("10.0.0.1", Some(Role::Viewer)));
        assert_eq!(owner(&roles, &["A.example", "b.example"]), who("A.example", None));
        assert_eq!(owner(&roles, &[]), None);
    }

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        let mistakes = ClientRoles::parse("a viewer\n\na admin\nb root\nc\n# d\ne viewer x").unwrap_err();
        let lines: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
        assert_eq!(lines, [3, 4, 5, 7], "{mistakes:?}");
    }
}
