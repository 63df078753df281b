//! Far more callers than bridges: everybody waits for a turn, and nobody for ever.

use pollux_xatmi::client::{CallFlags, Client, Outgoing, Which};

use crate::broker::Broker;
use crate::pools::{Pool, content, text, until};

/// Each has a reply queue, of which a machine has 256.
const CALLERS: usize = 50;
/// Calls that each of them has out at the same time.
const CALLS: usize = 4;

pub(crate) fn many_callers_share_two_bridges() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client();
    until("the service is there", || client.call("ECHO", &text("x"), CallFlags::NONE).ok());
    drop(client);
    let clients: Vec<Client> = (0..CALLERS).map(|_| there.client()).collect();
    std::thread::scope(|scope| {
        for (number, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                let words = |call| format!("caller {number}, call {call}");
                let send = |call| {
                    let request = text(&words(call));
                    let request = Outgoing::of(&request, 0).expect("text");
                    client.send_request("ECHO", request, CallFlags::NONE).expect("sent")
                };
                let out: Vec<_> = (0..CALLS).map(send).collect();
                for (call, descriptor) in out.into_iter().enumerate() {
                    let answer = client.answer(Which::One(descriptor), CallFlags::NONE);
                    let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", words(call)));
                    assert_eq!(content(&answer), format!("{}\0", words(call)).as_bytes());
                }
            });
        }
    });
    here.end();
    there.end();
}
