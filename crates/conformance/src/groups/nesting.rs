//! An epoll instance is itself something to watch.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use pollux_poller::{Interest, Readiness, Trigger};
use rustix::event::epoll;

use crate::rig::Rig;
use crate::{Case, Verdict, case};

pub(crate) const CASES: &[Case] = &[
    case!(an_epoll_instance_is_readable_while_something_is_ready, [Kernel]),
    case!(an_epoll_instance_can_be_watched_by_edge, [Kernel, Edge]),
    case!(an_epoll_instance_can_be_watched_once, [Kernel, Oneshot]),
    case!(two_levels_of_epoll_instances_can_be_watched, [Kernel]),
];

const READ: Interest = Interest::READABLE;

fn instance(watched: impl AsFd) -> OwnedFd {
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an instance");
    let data = epoll::EventData::new_u64(0);
    epoll::add(&instance, watched, data, epoll::EventFlags::IN).expect("a pollable file");
    instance
}

fn an_epoll_instance_is_readable_while_something_is_ready(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    rig.add(&inner, 1, READ, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    for _ in 0..2 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    }
    reader.read(8).expect("it was written");
    rig.quiet();
    Ok(())
}

fn an_epoll_instance_can_be_watched_by_edge(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    rig.add(&inner, 1, READ, Trigger::Edge)?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.settled(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn an_epoll_instance_can_be_watched_once(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    rig.add(&inner, 1, READ, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    rig.modify(&inner, 1, READ, Trigger::Oneshot)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn two_levels_of_epoll_instances_can_be_watched(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    let outer = instance(&inner);
    rig.add(&outer, 1, READ, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    reader.read(8).expect("it was written");
    // The readiness of nested instances is looked at again, layer by layer.
    assert!(rig.wait(8, Duration::from_millis(5)).is_empty());
    Ok(())
}
