//! The proxy between clients and backends that are bytes in the hands of a test, on every driver.
//!
//! | file | what it holds the proxy to |
//! |---|---|
//! | `by_hand` | one loop of a proxy, turned by hand |
//! | `stage` | starts proxies, scripted backends and clients |
//! | `heads` | what is written anew: a table of requests and answers, byte for byte |
//! | `faults` | hostile clients, backends that fail, and what is tried again |
//! | `troubles` | backends in trouble: a table of what the client gets, which is in the documentation too |
//! | `flow` | bodies both ways, back-pressure, pipelining, upgrades, many clients at once |
//! | `announced` | the PROXY protocol, from clients and to backends |
//! | `backends` | which backend gets a request, how one goes down and comes up, orders for it |
//! | `leaving` | clients that leave while their request is under way |
//! | `kept` | kept connections whose idle time ends when they are needed |
//! | `pool` | connections that threads share, and requests that wait for one |
//! | `room` | no room for a connection to a backend, and the end of the proxy with answers under way |
//! | `takeovers` | what sharing connections costs: counts of the poller |
//! | `status` | the live page and its figures |
//! | `streams` | TCP mode: bytes, ends and cuts both ways |
//! | `encrypted`, `encrypted_backends` | TLS from clients, and to backends |
//! | `identity` | certificates, and both ends of TLS |
//! | `economy` | calls that the poller is spared: counts of the engine |
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.
#![expect(clippy::print_stdout, reason = "a skipped driver is named")]

mod announced;
mod backends;
mod by_hand;
mod economy;
mod encrypted;
mod encrypted_backends;
mod faults;
mod flow;
mod heads;
mod identity;
mod kept;
mod leaving;
mod pool;
mod room;
mod stage;
mod status;
mod streams;
mod takeovers;
mod troubles;
