use std::os::fd::{AsFd, BorrowedFd};

use super::*;

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn of_link(kind: u16, family: u8, index: u32, attributes: &[u8]) -> Vec<u8> {
    let mut out = ((HEADER + LINK_INFO + attributes.len()) as u32)
        .to_ne_bytes()
        .to_vec();
    out.extend(kind.to_ne_bytes());
    out.resize(HEADER, 0);
    out.extend([family, 0, 0, 0]);
    out.extend(index.to_ne_bytes());
    out.resize(HEADER + LINK_INFO, 0);
    out.extend(attributes);
    out
}

/// A dump that ends with an error, or that a change has interrupted, is not a list, however many
/// links it has.
#[test]
fn what_is_not_complete_is_no_answer() {
    assert_eq!(error_of(&0_i32.to_ne_bytes()), None);
    assert_eq!(
        error_of(&(-libc::EMSGSIZE).to_ne_bytes()),
        Some(libc::EMSGSIZE)
    );
    assert_eq!(error_of(&[]), Some(libc::EIO));
    let disturbed = |times: u32| {
        let mut left = times;
        undisturbed(|| match left {
            0 => Ok(()),
            _ => {
                left -= 1;
                Err(io::ErrorKind::Interrupted.into())
            }
        })
    };
    assert!(disturbed(ATTEMPTS - 1).is_ok());
    assert_eq!(
        disturbed(ATTEMPTS).unwrap_err().kind(),
        io::ErrorKind::Interrupted
    );
    let refused = undisturbed(|| Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM)));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
}

/// Each list shows one moment: it contains all links that stay, while other links are added and
/// removed all the time.
#[test]
fn lists_under_change_are_complete() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::net::netns::testing::Named;
    let named = Named::new();
    for i in 0..60 {
        named.ip(&format!("link add tpa{i} type veth peer name tpb{i}"));
    }
    let netns = Netns::open(&named.path()).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                named.ip("link add tpx type veth peer name tpy");
                named.ip("link del tpx");
            }
        });
        let lists: Vec<_> = (0..200).map(|_| list(&netns)).collect();
        stop.store(true, Ordering::Relaxed);
        for list in lists {
            let found = list.unwrap().len();
            assert!((121..=123).contains(&found), "{found}");
        }
    });
}

#[test]
fn messages_are_told_apart() {
    let names = [
        attribute(libc::IFLA_IFNAME, b"eth0\0"),
        attribute(
            libc::IFLA_PROP_LIST | 0x8000,
            &attribute(libc::IFLA_ALT_IFNAME, b"enp0s3\0"),
        ),
    ];
    let mut bytes = of_link(libc::RTM_NEWLINK, 0, 7, &names.concat());
    bytes.extend(of_link(libc::RTM_DELLINK, libc::AF_BRIDGE as u8, 7, &[]));
    bytes.extend(of_link(libc::RTM_DELLINK, 0, 8, &[]));
    bytes.extend(of_link(libc::RTM_NEWLINK, 0, 9, &[]));
    let alternatives = ["enp0s3".to_owned()].into();
    let link = Link {
        index: 7,
        name: "eth0".to_owned(),
        alternatives,
    };
    assert_eq!(
        messages(&bytes),
        [
            Message::Here(link),
            Message::Other,
            Message::Gone(8),
            Message::Other
        ]
    );
    for cut in 0..bytes.len() {
        messages(&bytes[..cut]);
        let mut longer = bytes.clone();
        longer[cut] = 0xff;
        messages(&longer);
        longer[cut] = 0;
        messages(&longer);
    }
}
