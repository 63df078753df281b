//! Sockets that outlive the loops that listen on them: clients that connect while one group takes over from
//! another one is served by either. On every driver and listener strategy.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_engine::{Driver, Group, GroupConfig, Limits, ListenAddress, Listeners, Sockets};
use pollux_testing::wait_until;

use crate::lines::{Lines, Shared};
use crate::peer::{DEADLINE, drivers, file};

/// Groups that follow one another.
const GROUPS: u64 = 8;

fn start(driver: Driver, listeners: Listeners, threads: usize, sockets: &Sockets) -> Group {
    let config = GroupConfig {
        listen: Vec::new(),
        driver,
        threads,
        listeners,
        cpus: None,
        delays_small_writes: false,
        limits: Limits::default(),
    };
    let shared = |_| Ok::<_, std::io::Error>(Shared { file: file(), causes: Vec::new() });
    let sockets = sockets.duplicate().expect("descriptors are left");
    Group::start_on::<Lines, _, _>(&config, sockets, shared).expect("started")
}

/// Connects again and again until it is over; each time there has to be a greeting.
fn greeted(to: SocketAddr, is_over: &Arc<AtomicBool>, count: &Arc<AtomicU64>) -> JoinHandle<()> {
    let (is_over, count) = (Arc::clone(is_over), Arc::clone(count));
    std::thread::spawn(move || {
        while !is_over.load(SeqCst) {
            let mut peer = TcpStream::connect(to).expect("the sockets are open all the time");
            peer.set_read_timeout(Some(DEADLINE)).expect("set");
            let mut greeting = [0; 6];
            peer.read_exact(&mut greeting).expect("greeted by one of both");
            assert_eq!(&greeting, b"hello\n");
            count.fetch_add(1, SeqCst);
        }
    })
}

#[test]
fn nobody_is_lost_while_one_group_takes_the_sockets_over_from_another() {
    for driver in drivers() {
        for listeners in [Listeners::Reuseport, Listeners::Exclusive, Listeners::Single] {
            let any: [ListenAddress; 1] = ["127.0.0.1:0".parse().expect("an address")];
            let sockets = Sockets::open(&any, listeners, 2).expect("opened");
            let ListenAddress::Tcp(address) = sockets.addresses()[0].clone() else { panic!("TCP") };
            let (is_over, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
            let mut group = start(driver, listeners, 2, &sockets);
            let peers: Vec<_> = (0..4).map(|_| greeted(address, &is_over, &count)).collect();
            for number in 1..=GROUPS {
                let before = count.load(SeqCst);
                wait_until("a connection", || {
                    count.load(SeqCst) > before + 5 || peers.iter().any(JoinHandle::is_finished)
                });
                // With other numbers of threads than there are sockets, too.
                let next = start(driver, listeners, 1 + number as usize % 3, &sockets);
                let old = std::mem::replace(&mut group, next);
                old.drain(Duration::from_secs(10));
                old.join().expect("it drains");
            }
            is_over.store(true, SeqCst);
            for peer in peers {
                let ended = peer.join();
                assert!(ended.is_ok(), "{driver} {listeners}: a connection was lost");
            }
            group.abort();
            group.join().expect("ended");
        }
    }
}
