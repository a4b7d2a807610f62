//! The pods and Services that have addresses: a table in memory, which documents look up. An
//! address whose pod has ended keeps its name until another pod gets it, so that the last windows
//! of a pod have it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use twinprobe_ebpf_common::window::Window;
use twinprobe_ebpf_common::window::owner::{AddressOwner, AddressOwners, OwnedSince, OwnersAt};

/// The most addresses that keep the name of their last owner although they have no owner now.
const MOST_EARLIER: usize = 4096;
/// The most owners of one address that the daemon distinguishes by time.
const MOST_OF_ONE: usize = 4;

/// The present owners and the previous ones.
#[derive(Debug, Default)]
pub struct OwnerBook(Mutex<BookState>);

#[derive(Debug, Default)]
struct BookState {
    owners: Arc<AddressOwners>,
    present: HashMap<IpAddr, AddressOwner>,
    /// False until the first owners are known. These had their addresses before the daemon knew
    /// them.
    has_begun: bool,
}

impl OwnerBook {
    /// Replaces the present owners.
    pub fn set(&self, present: HashMap<IpAddr, AddressOwner>, now: Timestamp) {
        let mut state = self.0.lock();
        if state.present == present {
            return;
        }
        let since = if state.has_begun {
            now.as_nanosecond()
        } else {
            i128::MIN
        };
        let mut owners = AddressOwners::clone(&state.owners);
        for (address, owner) in &present {
            let of_one = owners.0.entry(*address).or_default();
            if of_one.last().is_none_or(|last| *last.owner != *owner) {
                of_one.push(OwnedSince {
                    since,
                    owner: Arc::new(owner.clone()),
                });
                of_one.drain(..of_one.len().saturating_sub(MOST_OF_ONE));
            }
        }
        forget(&mut owners, &present);
        *state = BookState {
            owners: Arc::new(owners),
            present,
            has_begun: true,
        };
    }

    /// Returns the owners at the end of a window, or the present owners; `None` if there are no
    /// owners.
    pub fn at(&self, window: Option<&Window>) -> Option<OwnersAt> {
        let owners = Arc::clone(&self.0.lock().owners);
        if owners.0.is_empty() {
            return None;
        }
        let time = window
            .map_or(Ok(Timestamp::now()), |window| window.end.parse())
            .ok()?;
        Some(OwnersAt {
            owners,
            time: time.as_nanosecond(),
        })
    }
}

/// Forgets addresses without a present owner, those with the oldest owners first.
fn forget(owners: &mut AddressOwners, present: &HashMap<IpAddr, AddressOwner>) {
    let earlier = owners
        .0
        .iter()
        .filter(|(address, _)| !present.contains_key(address));
    let mut earlier: BTreeMap<_, _> = earlier
        .filter_map(|(address, of_one)| Some(((of_one.last()?.since, *address), *address)))
        .collect();
    while earlier.len() > MOST_EARLIER {
        if let Some((_, address)) = earlier.pop_first() {
            owners.0.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::PodNames;

    use super::*;

    fn pod(name: &str) -> AddressOwner {
        AddressOwner::Pod(PodNames {
            namespace: "shop".into(),
            pod: name.into(),
            workload: None,
        })
    }

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    fn names(book: &OwnerBook, address: IpAddr, end: i64) -> Option<String> {
        let window = Window {
            end: second(end).to_string(),
            ..Window::default()
        };
        let at = book.at(Some(&window))?;
        Some(at.of(address)?.fields().nth(1)?.1.to_owned())
    }

    #[test]
    fn a_window_has_the_owner_of_its_time() {
        let (book, address) = (OwnerBook::default(), "10.1.0.7".parse().unwrap());
        assert_eq!(names(&book, address, 1), None);
        book.set([(address, pod("a"))].into(), second(10));
        book.set(HashMap::new(), second(20));
        book.set([(address, pod("b"))].into(), second(30));
        let shown = [1, 10, 29, 30].map(|end| names(&book, address, end));
        assert_eq!(
            shown,
            ["a", "a", "a", "b"].map(|name| Some(name.to_owned()))
        );
    }

    #[test]
    fn a_bounded_number_of_earlier_owners_stays() {
        let book = OwnerBook::default();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..3 {
            let range = number * 4000..(number + 1) * 4000;
            book.set(
                range.map(|number| (address(number), pod("a"))).collect(),
                second(number.into()),
            );
        }
        assert_eq!(book.0.lock().owners.0.len(), 4000 + MOST_EARLIER);
        assert_eq!(names(&book, address(11_999), 9), Some("a".into()));
    }
}
