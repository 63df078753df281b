//! A client of the broker that is not a bridge sends what no bridge would.

use pollux_xatmi::client::{CallError, CallFlags};
use pollux_xatmi::error::Code;

use crate::broker::{Broker, Raw};
use crate::pools::{Pool, content, text, until};

/// TPSUCCESS and TPEXIT.
const EXIT: &str = "Pollux-Rval: 134217730";

pub(crate) fn unknown_senders_disturb_nobody() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client();
    let hello = text("hello");
    until("the service is there", || client.call("ECHO", &hello, CallFlags::NONE).ok());
    let bridges = [here.bridges(), there.bridges()];
    let mut raw = broker.raw();

    garbage(&mut raw);
    let answer = client.call("ECHO", &hello, CallFlags::NONE).expect("nobody minds");
    assert_eq!(content(&answer), b"hello\0");

    // A pool that there is not offers a service, and answers as it likes.
    raw.subscribe("pollux.test.call.STRANGE", "bridges");
    let list = br#"{"pool":"strange","services":["STRANGE"],"refresh_s":60}"#;
    raw.publish_bare("pollux.test.news", list);
    let (ok, reply) = (None, "Pollux-Reply: 1");
    let said: [(&[&str], &[u8], Option<Code>); 7] = [
        (&[reply, EXIT, "Pollux-Urcode: 5"], b"", ok),
        (&["Pollux-Request: 1", EXIT, "Pollux-Urcode: 5"], b"", Some(Code::ServiceError)),
        (&[reply, "Pollux-Error: 4711"], b"", Some(Code::ServiceError)),
        (
            &[reply, EXIT, "Pollux-Urcode: 5", "Pollux-Type: UBF", "Pollux-Size: 64"],
            b"no fields",
            Some(Code::ServiceError),
        ),
        (
            &[reply, EXIT, "Pollux-Urcode: 5", "Pollux-Type: CARRAY", "Pollux-Size: 99999999999"],
            b"x",
            Some(Code::ServiceError),
        ),
        (&["Pollux-Reply: 9", EXIT, "Pollux-Urcode: 5"], b"", Some(Code::ServiceError)),
        (&[], b"\x00\xff", Some(Code::ServiceError)),
    ];
    for (headers, payload, expected) in said {
        let called = std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                until("the service is known", || {
                    match client.call("STRANGE", &hello, CallFlags::NONE) {
                        Err(error) if error.code() == Code::NoEntry => None,
                        ended => Some(ended),
                    }
                })
            });
            let asked = raw.next();
            let inbox = asked.reply.expect("it waits for an answer");
            // What is for another call comes first, and is nobody's.
            raw.publish(&format!("{inbox}9"), "", &[reply, EXIT, "Pollux-Urcode: 6"], b"");
            raw.publish(&inbox, "", headers, payload);
            call.join().expect("it ended")
        });
        assert_eq!(called.as_ref().err().map(CallError::code), expected, "{headers:?}");
        if let Ok(answer) = called {
            assert_eq!(answer.urcode, 5);
        }
    }
    client.call("ECHO", &hello, CallFlags::NONE).expect("nobody minds");
    assert_eq!([here.bridges(), there.bridges()], bridges, "no bridge was started anew");
    until("the log counts them", || here.log().contains("none of a bridge's").then_some(()));
    drop(client);
    here.end();
    there.end();
}

/// On all subjects of the domain: no headers, wrong headers, replies for requests, answers that lead
/// back to where they came from.
fn garbage(raw: &mut Raw) {
    let call = "pollux.test.call.ECHO";
    let long = vec![0xff; 900_000];
    for payload in [&b""[..], b"\x00\x01\xff", b"[[[[", &long] {
        for subject in [call, "pollux.test.news", "pollux.test.who"] {
            raw.publish_bare(subject, payload);
            raw.publish(subject, call, &["Pollux-Type: UBF", "Pollux-Size: 1000000"], payload);
            raw.publish(subject, subject, &["Pollux-Reply: 1", EXIT, "Pollux-Urcode: 0"], payload);
        }
    }
    let sized = ["Pollux-Request: 1", "Pollux-Type: CARRAY", "Pollux-Size: 67108864"];
    raw.publish(call, call, &sized, b"x");
    let without_end = "Pollux-Timeout-Ms: 18446744073709551615";
    raw.publish(call, "pollux.test.news", &["Pollux-Request: 1", without_end], b"");
}
