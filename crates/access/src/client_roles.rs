//! The roles of clients that have a certificate: one per line, `SAN ROLE`.
//!
//! A certificate gives the kind of each of its names, and an authority may let clients choose names
//! of one kind only. Therefore a line is about names of one kind: the kind of its prefix (`dns:`,
//! `email:`, `uri:`, `ip:`), or the kind of the name's form.

use std::collections::BTreeMap;

use crate::lines::{self, Mistake, check_name};
use crate::names;
use crate::principal::{Principal, Who};
use crate::role::Role;

/// Roles by subject alternative name, in the form of [`names::canonical`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRoles(BTreeMap<String, Role>);

impl ClientRoles {
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let mut roles = BTreeMap::new();
        lines::parse(text, |words| {
            let &[name, role] = words else {
                return Err("a line is SAN ROLE".to_owned());
            };
            check_name(name)?;
            match roles.insert(names::of_line(name), lines::role(role)?) {
                Some(_) => Err("an earlier line already has this name".to_owned()),
                None => Ok(()),
            }
        })?;
        Ok(Self(roles))
    }

    /// Returns the owner of a certificate with these canonical names: the name with the highest
    /// role, or the first name if no line has any of them. `None` if there is no name.
    pub fn owner(&self, names: &[String]) -> Option<Principal> {
        let known = names.iter().map(|name| (self.0.get(name).copied(), name));
        // The first of several names with one role is taken.
        let (role, name) = known.rev().max_by_key(|(role, _)| *role)?;
        Some(Principal {
            who: Who::Certificate(name.clone()),
            role,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameKind;

    fn owner(roles: &ClientRoles, names: &[&str]) -> Option<Principal> {
        roles.owner(
            &names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn the_highest_role_of_a_certificate_counts() {
        let roles = ClientRoles::parse(
            "a.example viewer\nspiffe://x/y admin # the deployer\n\n10.0.0.1 viewer",
        )
        .unwrap();
        let who = |name: &str, role| {
            Some(Principal {
                who: Who::Certificate(name.into()),
                role,
            })
        };
        assert_eq!(
            owner(&roles, &["a.example"]),
            who("a.example", Some(Role::Viewer))
        );
        assert_eq!(
            owner(&roles, &["a.example", "spiffe://x/y"]),
            who("spiffe://x/y", Some(Role::Admin))
        );
        assert_eq!(
            owner(&roles, &["10.0.0.1", "a.example"]),
            who("10.0.0.1", Some(Role::Viewer))
        );
        assert_eq!(
            owner(&roles, &["A.example", "b.example"]),
            who("A.example", None)
        );
        assert_eq!(owner(&roles, &[]), None);
    }

    #[test]
    fn a_name_of_another_kind_is_another_name() {
        let roles = ClientRoles::parse(
            "deployer admin\nemail:ops viewer\nbot@example.org collector\nURI:urn:x operator\nIP:10.0.0.1 operator",
        )
        .unwrap();
        let role = |kind, name| {
            roles
                .owner(&[names::canonical(kind, name)])
                .and_then(|owner| owner.role)
        };
        assert_eq!(role(NameKind::Dns, "deployer"), Some(Role::Admin));
        for kind in [NameKind::Email, NameKind::Uri, NameKind::Ip] {
            assert_eq!(role(kind, "deployer"), None, "{kind:?}");
        }
        assert_eq!(
            (role(NameKind::Email, "ops"), role(NameKind::Dns, "ops")),
            (Some(Role::Viewer), None)
        );
        assert_eq!(
            role(NameKind::Dns, "email:ops"),
            None,
            "a name can't name its kind"
        );
        assert_eq!(role(NameKind::Uri, "email:ops"), None);
        assert_eq!(
            role(NameKind::Email, "bot@example.org"),
            Some(Role::Collector)
        );
        assert_eq!(role(NameKind::Dns, "bot@example.org"), None);
        assert_eq!(role(NameKind::Uri, "urn:x"), Some(Role::Operator));
        assert_eq!(
            (
                role(NameKind::Ip, "10.0.0.1"),
                role(NameKind::Dns, "10.0.0.1")
            ),
            (Some(Role::Operator), None)
        );
        let twice = ClientRoles::parse("a.example viewer\ndns:a.example admin").unwrap_err();
        assert_eq!(twice[0].line, 2, "one name, written in two ways");
    }

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        let mistakes =
            ClientRoles::parse("a viewer\n\na admin\nb root\nc\n# d\ne viewer x").unwrap_err();
        let lines: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
        assert_eq!(lines, [3, 4, 5, 7], "{mistakes:?}");
    }
}
