use tokio::time::timeout;

use super::*;
use crate::net::interface::list;
use crate::net::netns::testing::Named;

/// The longest time until the watch notices a change, however busy the machine is.
const SOON: Duration = Duration::from_secs(120);
const QUIET: Duration = Duration::from_millis(300);

impl LinkWatch {
    async fn new(netns: &Netns) -> io::Result<Self> {
        let netns = netns.clone();
        Self::open(move || Ok(netns)).await
    }
}

impl PlaceWatch {
    /// Returns the namespace that was found last, or the reason why there was none.
    fn netns(&self) -> Result<&Netns, &io::Error> {
        self.state.as_ref().map(|watch| &watch.netns)
    }
}

async fn changes(watch: &mut LinkWatch) -> LinkChanges {
    timeout(SOON, watch.changed())
        .await
        .expect("a change is noticed")
        .unwrap()
}

fn links() -> LinkChanges {
    LinkChanges {
        links: true,
        ..LinkChanges::default()
    }
}

/// Waits until the kernel has reported all steps of a change.
async fn quiet(watch: &mut LinkWatch) {
    while let Ok(changes) = timeout(QUIET, watch.changed()).await {
        changes.unwrap();
    }
}

async fn stays_quiet(watch: &mut LinkWatch) {
    assert!(
        timeout(QUIET, watch.changed()).await.is_err(),
        "nothing that matters has changed"
    );
}

fn index(netns: &Netns, name: &str) -> u32 {
    list(netns).unwrap().by_name[name]
}

#[tokio::test]
async fn links_that_come_go_move_and_are_renamed_are_noticed() {
    let (here, there) = (Named::new(), Named::new());
    let netns = Netns::open(&here.path()).unwrap();
    let mut watch = LinkWatch::new(&netns).await.unwrap();
    stays_quiet(&mut watch).await;

    here.ip("link add tpa type veth peer name tpb");
    assert_eq!(changes(&mut watch).await, links());
    quiet(&mut watch).await;

    here.ip("link set tpa name tpc");
    assert_eq!(changes(&mut watch).await, links());
    stays_quiet(&mut watch).await;

    here.ip("link set tpc up");
    // The kernel reports alternative names only of links that are up.
    here.ip("link property add dev tpc altname tp-other");
    assert_eq!(changes(&mut watch).await, links());

    let moved = index(&netns, "tpc");
    here.ip(&format!("link set tpc netns {}", there.0));
    assert_eq!(changes(&mut watch).await.gone, [moved].into());
    quiet(&mut watch).await;
    there.ip(&format!("link set tpc netns {}", here.0));
    assert_eq!(changes(&mut watch).await, links());
    quiet(&mut watch).await;

    let deleted = [index(&netns, "tpc"), index(&netns, "tpb")].into();
    here.ip("link del tpc");
    let mut gone = changes(&mut watch).await.gone;
    while gone != deleted {
        gone.extend(changes(&mut watch).await.gone);
    }
    stays_quiet(&mut watch).await;
}

#[tokio::test]
async fn what_is_told_of_a_link_that_stays_does_not_matter() {
    let named = Named::new();
    named.ip("link add tpa type veth peer name tpb");
    named.ip("link add tpbr type bridge");
    let mut watch = LinkWatch::new(&Netns::open(&named.path()).unwrap())
        .await
        .unwrap();
    for change in [
        "link set tpa up",
        "link set tpa mtu 1400",
        "link set tpa alias word",
        "addr add 10.9.8.7/24 dev tpa",
        "link set tpa master tpbr",
        "link set tpa nomaster",
        "link set tpa down",
    ] {
        named.ip(change);
    }
    stays_quiet(&mut watch).await;
}

/// A link that was removed and made again with the same name and index counts as removed,
/// although no list shows the difference.
#[tokio::test]
async fn a_link_that_was_made_anew_has_gone() {
    let named = Named::new();
    named.ip("link add tpa index 77 type veth peer name tpb index 78");
    let mut watch = LinkWatch::new(&Netns::open(&named.path()).unwrap())
        .await
        .unwrap();
    named.ip("link del tpa");
    named.ip("link add tpa index 77 type veth peer name tpb index 78");
    assert_eq!(changes(&mut watch).await.gone, [77, 78].into());
}

#[tokio::test]
async fn more_than_the_socket_holds_counts_as_a_change() {
    let named = Named::new();
    let mut watch = LinkWatch::new(&Netns::open(&named.path()).unwrap())
        .await
        .unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(watch.socket.get_ref(), 1).unwrap();
    for i in 0..10 {
        named.ip(&format!("link add tpa{i} type veth peer name tpb{i}"));
    }
    assert!(changes(&mut watch).await.missed);
    assert_eq!(watch.known.len(), 21);
    quiet(&mut watch).await;
    named.ip("link del tpa3");
    changes(&mut watch).await;
}

#[tokio::test]
async fn namespaces_at_a_path_come_and_go() {
    let named = Named::new();
    let mut watch = PlaceWatch::new(Some(&named.path())).await;
    let id = watch.netns().unwrap().id();
    named.ip("link add tpa type veth peer name tpb");
    assert!(matches!(
        noticed(&mut watch).await,
        NamespaceChange::Links(_)
    ));

    named.delete();
    while !matches!(noticed(&mut watch).await, NamespaceChange::Namespace) {}
    assert_eq!(watch.netns().unwrap_err().kind(), io::ErrorKind::NotFound);

    named.create();
    while watch.netns().is_err() {
        assert!(matches!(
            noticed(&mut watch).await,
            NamespaceChange::Namespace
        ));
    }
    named.ip("link add tpc type veth peer name tpd");
    assert!(matches!(
        noticed(&mut watch).await,
        NamespaceChange::Links(_)
    ));

    // The deletion and the creation happen between two checks. The old namespace is still open,
    // so that the new one gets another number.
    let id_before = watch.netns().unwrap().id();
    named.delete();
    named.create();
    while !matches!(noticed(&mut watch).await, NamespaceChange::Namespace) {}
    while watch.netns().is_err() {
        noticed(&mut watch).await;
    }
    assert_ne!(watch.netns().unwrap().id(), id_before, "first {id}");
}

#[tokio::test]
async fn the_own_namespace_stays() {
    let watch = PlaceWatch::new(None).await;
    assert!(watch.netns().unwrap().is_own());
}

async fn noticed(watch: &mut PlaceWatch) -> NamespaceChange {
    timeout(SOON, watch.changed())
        .await
        .expect("a change is noticed")
}
