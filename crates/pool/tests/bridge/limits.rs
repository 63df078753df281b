//! Messages around the longest that the broker takes.

use std::io::Write;
use std::time::{Duration, Instant};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::CallFlags;
use pollux_xatmi::error::Code;
use rustix::process::Signal;

use crate::broker::Broker;
use crate::pools::{Plan, Pool, text, until};

const PAYLOAD_MAX: usize = 16_384;
/// More than the headers of any message here.
const HEADERS_MAX: usize = 400;
/// The time limit of a call whose reply may be lost.
const LIMIT: Duration = Duration::from_secs(3);
/// Far less than a call may take.
const AT_ONCE: Duration = Duration::from_secs(20);

/// A request or a reply that does not fit, with its headers, is an error now and not after the time
/// of the call; and the bridge says why in its log.
pub(crate) fn what_is_too_long_is_refused_at_once() {
    let mut config = tempfile::NamedTempFile::new().expect("a file");
    writeln!(config, "max_payload: {PAYLOAD_MAX}").expect("written");
    config.flush().expect("written");
    let broker = Broker::start(&["-c", &config.path().to_string_lossy()]);
    let url = broker.url();
    let services = Plan { nats: &url, exports: "ECHO,GROW", ..Plan::EMPTY };
    let here = Pool::start(&Plan { name: "here", services: "ECHO GROW", ..services });
    let there = Pool::start(&Plan { name: "there", services: "OTHER", exports: "", ..services });
    let mut client = there.client();
    until("the service is there", || client.call("GROW", &text("1"), CallFlags::NONE).ok());
    let mut outcomes = [0, 0];
    let sizes = (PAYLOAD_MAX - HEADERS_MAX..=PAYLOAD_MAX + 7).step_by(37).chain([5 * PAYLOAD_MAX]);
    for size in sizes {
        let sent = Buffer::carray(&vec![5; size]).expect("bytes");
        let asked = text(&size.to_string());
        for (service, request) in [("ECHO", &sent), ("GROW", &asked)] {
            let began = Instant::now();
            match client.call(service, request, CallFlags::NONE) {
                Ok(answer) => {
                    assert_eq!(answer.len_bytes, size, "{service}");
                    outcomes[0] += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::ServiceError, "{service} {size}: {error}");
                    outcomes[1] += 1;
                }
            }
            assert!(began.elapsed() < AT_ONCE, "{service} {size}: {:?}", began.elapsed());
        }
    }
    assert!(outcomes.iter().all(|count| *count > 2), "{outcomes:?}");
    // A limit that is lowered while bridges are connected: the broker hangs up on who does not know.
    // Over here that is known at once; over there it takes the reply along.
    client.set_timeout(LIMIT);
    let half = Buffer::carray(&vec![5; PAYLOAD_MAX / 2]).expect("bytes");
    client.call("ECHO", &half, CallFlags::NONE).expect("it fits");
    std::fs::write(config.path(), format!("max_payload: {}\n", PAYLOAD_MAX / 4)).expect("written");
    broker.signal(Signal::HUP);
    until("the lower limit is in force", || {
        let began = Instant::now();
        let ended = client.call("ECHO", &half, CallFlags::NONE);
        assert!(began.elapsed() < LIMIT + AT_ONCE, "{:?}", began.elapsed());
        let code = ended.err()?.code();
        assert!(matches!(code, Code::ServiceError | Code::Time), "{code:?}");
        Some(())
    });
    until("short calls go over", || client.call("ECHO", &text("x"), CallFlags::NONE).ok());
    for pool in [&here, &there] {
        assert!(pool.log().contains("max_payload"), "{}", pool.log());
    }
    drop(client);
    here.end();
    there.end();
}
