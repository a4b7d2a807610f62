//! A cable between two namespaces, with an address at each end, that tests cut.

use anyhow::Result;

use crate::netns::{Namespace, unique_prefix};

/// An end of a [`Cable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CableEnd {
    Near,
    Far,
}

/// A veth pair with addresses. It is removed with its namespaces.
#[derive(Debug)]
pub struct Cable {
    near: Namespace,
    far: Namespace,
    number: u8,
}

impl Cable {
    /// Lays a cable. The number distinguishes it from the others of the same namespaces.
    pub fn lay(near: &Namespace, far: &Namespace, number: u8) -> Result<Self> {
        let cable = Self {
            near: near.clone(),
            far: far.clone(),
            number,
        };
        let (name, peer) = (cable.name(), far.path().to_string_lossy().into_owned());
        near.run(
            "ip",
            &[
                "link", "add", &name, "type", "veth", "peer", "name", &name, "netns", &peer,
            ],
        )?;
        for (host, end) in [(1, near), (2, far)] {
            end.run(
                "ip",
                &[
                    "address",
                    "add",
                    &format!("10.99.{number}.{host}/24"),
                    "dev",
                    &name,
                ],
            )?;
            end.run("ip", &["link", "set", &name, "up"])?;
        }
        Ok(cable)
    }

    /// Lays a cable between two new namespaces.
    pub fn alone() -> Result<Self> {
        let prefix = unique_prefix();
        let end = |role: &str| Namespace::create(&format!("{prefix}-{role}"));
        Self::lay(&end("near")?, &end("far")?, 1)
    }

    pub fn near(&self) -> &Namespace {
        &self.near
    }

    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// The address of the far end.
    pub fn address(&self) -> String {
        format!("10.99.{}.2", self.number)
    }

    /// Takes one end down, until [`Cable::mend`]. The end loses all packets in both directions,
    /// without an error. Connections stay open.
    pub fn cut(&self, end: CableEnd) -> Result<()> {
        self.set(end, "down")
    }

    pub fn mend(&self) -> Result<()> {
        self.set(CableEnd::Near, "up")?;
        self.set(CableEnd::Far, "up")
    }

    fn set(&self, end: CableEnd, state: &str) -> Result<()> {
        let namespace = if end == CableEnd::Near {
            &self.near
        } else {
            &self.far
        };
        namespace.run("ip", &["link", "set", &self.name(), state])
    }

    fn name(&self) -> String {
        format!("cable{}", self.number)
    }
}
