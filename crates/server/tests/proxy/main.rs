//! The proxy between clients and backends that are bytes in the hands of a test, on every driver.
//!
//! | file | what it holds the proxy to |
//! |---|---|
//! | `by_hand` | loops of a proxy, turned by hand: counts of the poller, idle times that end |
//! | `stage` | starts proxies, scripted backends and clients |
//! | `heads` | what is written anew: a table of requests and answers, byte for byte; the PROXY protocol |
//! | `faults` | hostile clients, backends that fail, and what is tried again |
//! | `troubles` | backends in trouble: a table of what the client gets, which is in the documentation too |
//! | `flow` | bodies both ways, back-pressure, pipelining, upgrades, many clients at once |
//! | `backends` | which backend gets a request, how one goes down and comes up, orders for it, the live page |
//! | `leaving` | clients that leave, no room for a connection, the end of the proxy with answers under way |
//! | `pool` | connections that threads share, and requests that wait for one |
//! | `streams` | TCP mode: bytes, ends and cuts both ways |
//! | `encrypted` | TLS from clients, and to backends |
//! | `identity` | certificates, and both ends of TLS |
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.

mod backends;
mod by_hand;
mod encrypted;
mod faults;
mod flow;
mod heads;
mod identity;
mod leaving;
mod pool;
mod stage;
mod streams;
mod troubles;
