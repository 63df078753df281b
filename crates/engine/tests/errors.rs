//! What a program that does not care about this crate's errors makes of them: `io::Error`.

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::net::TcpListener;

use pollux_engine::{
    Actions, Driver, Group, GroupConfig, GroupError, ListenAddress, LoopError, Session,
};

struct Silent;

impl Session for Silent {
    type Shared = ();

    fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
        Self
    }

    fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
        input.len()
    }

    fn on_end(&mut self, (): &mut (), actions: &mut Actions<'_>) {
        actions.close();
    }

    fn on_deadline(&mut self, (): &mut (), _: &mut Actions<'_>) {}

    fn on_drain(&mut self, (): &mut (), actions: &mut Actions<'_>) {
        actions.close();
    }
}

fn start(config: &GroupConfig) -> Result<Group, GroupError> {
    Group::start::<Silent, _, io::Error>(config, |_| Ok(()))
}

#[test]
fn the_default_group_listens_on_a_port_that_the_kernel_chose() {
    let group = start(&GroupConfig::default()).expect("epoll is always there");
    let [ListenAddress::Tcp(address)] = group.addresses() else { panic!("one TCP address") };
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
    group.abort();
    group.join().expect("ended");
}

#[test]
fn an_address_in_use_keeps_its_kind() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = ListenAddress::Tcp(taken.local_addr().expect("bound"));
    let config = GroupConfig { listen: vec![address], ..GroupConfig::default() };
    let error = io::Error::from(start(&config).err().expect("the port is taken"));
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<GroupError>());
    assert!(matches!(inside, Some(GroupError::Listen(_))), "{error:?}");
}

#[test]
fn a_mechanism_that_is_not_there_is_unsupported_and_says_why() {
    let (mechanism, reason) = (Driver::Completion.name(), "the sysctl forbids it".to_owned());
    let cause = io::Error::from_raw_os_error(1);
    let error = LoopError::Unavailable { mechanism, reason, cause };
    assert_eq!(error.to_string(), "uring is not available here: the sysctl forbids it");
    assert!(error.source().is_some(), "the kernel's word is not lost");
    assert_eq!(io::Error::from(error).kind(), ErrorKind::Unsupported);
}
