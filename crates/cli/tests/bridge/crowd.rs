//! Far more callers than bridges: everybody waits for a turn, and nobody for ever.

use pollux_xatmi::client::{CallFlags, Client};

use crate::broker::Broker;
use crate::pools::{Plan, Pool, content, text, until};

/// Each has a reply queue of 2 × 1120 bytes, charged against 819,200.
const CALLERS: usize = 200;

pub(crate) fn many_callers_share_two_bridges() {
    let broker = Broker::start(&[]);
    let url = broker.url();
    let here = Pool::start(&Plan {
        name: "here",
        nats: &url,
        exports: "ECHO",
        services: "ECHO",
        ..Plan::EMPTY
    });
    let there = Pool::start(&Plan { name: "there", nats: &url, services: "OTHER", ..Plan::EMPTY });
    let mut client = there.client();
    until("the service is there", || client.call("ECHO", &text("x"), CallFlags::NONE).ok());
    drop(client);
    let clients: Vec<Client> = (0..CALLERS).map(|_| there.client()).collect();
    std::thread::scope(|scope| {
        for (number, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                let words = format!("caller {number}");
                let answer = client.call("ECHO", &text(&words), CallFlags::NONE);
                let answer = answer.unwrap_or_else(|error| panic!("{words}: {error}"));
                assert_eq!(content(&answer), format!("{words}\0").as_bytes());
            });
        }
    });
    here.end();
    there.end();
}
