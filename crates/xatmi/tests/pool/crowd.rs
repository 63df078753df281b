//! 250 copies, as the seed has them.

use std::time::Instant;

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::CallFlags;
use pollux_xatmi::control::Request;

use crate::support::{TestPool, say};

pub(crate) const TESTS: &[crate::Test] =
    &[("two_hundred_and_fifty_copies_start_and_stop", two_hundred_and_fifty_copies)];

/// The times are printed and not judged: the machine may be busy.
fn two_hundred_and_fifty_copies() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>250</min><max>250</max></server>";
    let mut pool = TestPool::new("", servers);
    let began = Instant::now();
    pool.begin();
    let said = pool.ask(&Request::Settle).expect("all are up");
    say(&format!("250 copies: {said} after {:.2} s", began.elapsed().as_secs_f64()));
    assert_eq!(said, "250 of 250 workers up");
    assert_eq!(pool.workers().len(), 250);
    assert_eq!(pool.services().len(), 1000);
    let hello = Buffer::string("hello").expect("it fits");
    pool.client().call("ECHO", &hello, CallFlags::NONE).expect("it serves");
    let began = Instant::now();
    pool.end();
    say(&format!("250 copies: stopped after {:.2} s", began.elapsed().as_secs_f64()));
}
