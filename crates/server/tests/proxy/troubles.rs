//! Backends in trouble: one table of what they do, what the client gets, and what the log says. The same
//! table stands in `docs/proxy.md`.

use std::fmt::Write as _;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_server::config::ProxyConfig;
use pollux_server::config::{LogFormat, LogTarget};
use pollux_server::{Fault, Party};
use serde_json::Value;

use crate::{Backend, Client, GET, OK, field, on_all_drivers_at_once, unreachable};

const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab";
const LONG_POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc";
/// What a client asks for behind each trouble, where its connection is in order: it is answered well.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
const NEXT_LINE: &str = "GET /next ";
/// The time that an answer, or each piece of it, has where that is what is waited for.
const SHORT: Duration = Duration::from_millis(300);
/// And everywhere else: longer than a busy machine takes for anything.
const LONG: Duration = Duration::from_secs(60);
/// Between the pieces of a slow answer.
const PAUSE: Duration = Duration::from_millis(20);

/// What a backend does on each connection, in this order; behind the last step it closes.
#[derive(Clone, Copy)]
enum Step {
    Read,
    Send(&'static str),
    /// Waits, for far less than the time that the answer has.
    Pause,
    /// Does nothing more until the proxy closes.
    Hang,
}

use Step::{Hang, Pause, Read, Send};

/// What the client gets for its last request.
#[derive(Clone, Copy)]
enum Gets {
    /// A page of the proxy.
    Page(u16),
    /// The backend's answer, and all of its body.
    Answer(u16, &'static str),
    /// The beginning of an answer, and a cut; or a page where nothing had been passed on.
    Cut(u16),
}

struct Trouble {
    backend: &'static str,
    /// None without a listener.
    play: Option<Vec<Step>>,
    requests: &'static [&'static str],
    gets: Gets,
    /// Without one the log says `ok`.
    fault: Option<Fault>,
    state: &'static str,
    tries: u64,
}

/// The client gets the page of the fault, as nothing of an answer came.
fn fails(backend: &'static str, play: Vec<Step>, fault: Fault) -> Trouble {
    let gets = Gets::Page(fault.status().code());
    Trouble { fault: Some(fault), state: "wait", ..answers(backend, play, gets) }
}

/// What it sends is not an answer to the request.
fn is_wrong(backend: &'static str, sends: &'static str) -> Trouble {
    fails(backend, vec![Read, Send(sends), Hang], Fault::BadAnswer)
}

/// It stops in the middle of an answer, of which the client gets the beginning.
fn cuts(backend: &'static str, play: Vec<Step>, fault: Fault) -> Trouble {
    let gets = Gets::Cut(fault.status().code());
    Trouble { gets, state: "answer", ..fails(backend, play, fault) }
}

fn answers(backend: &'static str, play: Vec<Step>, gets: Gets) -> Trouble {
    let play = Some(play);
    Trouble { backend, play, requests: &[GET], gets, fault: None, state: "", tries: 1 }
}

fn troubles() -> Vec<Trouble> {
    vec![
        Trouble {
            play: None,
            state: "connect",
            ..fails("accepts no connection", Vec::new(), Fault::ConnectFailed)
        },
        fails("closes each new connection when GET comes", vec![Read], Fault::Closed),
        Trouble {
            requests: &[POST],
            ..fails("closes a new connection when POST comes", vec![Read], Fault::Closed)
        },
        Trouble {
            requests: &[GET, GET],
            tries: 2,
            ..answers(
                "closes a kept connection when GET comes",
                vec![Read, Send(OK), Read],
                Gets::Answer(200, "hi"),
            )
        },
        Trouble {
            requests: &[GET, POST],
            ..fails(
                "closes a kept connection when POST comes",
                vec![Read, Send(OK), Read],
                Fault::Closed,
            )
        },
        fails(
            "closes in the middle of each head",
            vec![Read, Send("HTTP/1.1 200 OK\r\nContent-Le")],
            Fault::Closed,
        ),
        fails(
            "closes behind an interim answer",
            vec![Read, Send("HTTP/1.1 102 Processing\r\n\r\n")],
            Fault::Closed,
        ),
        is_wrong("answers in another protocol", "SSH-2.0-x\r\n"),
        is_wrong(
            "names two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
        ),
        is_wrong("folds a line", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n"),
        is_wrong(
            "uses a coding that was not asked for",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        answers(
            "names a length beside chunks",
            vec![
                Read,
                Send(
                    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2\r\nhi\r\n0\r\n\r\n",
                ),
                Hang,
            ],
            Gets::Answer(200, "2\r\nhi\r\n0\r\n\r\n"),
        ),
        is_wrong(
            "upgrades without having been asked to",
            "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nraw",
        ),
        cuts(
            "closes in the middle of a body",
            vec![Read, Send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")],
            Fault::Cut,
        ),
        cuts(
            "closes between chunks",
            vec![Read, Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")],
            Fault::Cut,
        ),
        cuts(
            "breaks its chunks",
            vec![
                Read,
                Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
                Pause,
                Send("x\r\n0\r\n\r\n"),
                Hang,
            ],
            Fault::BadAnswer,
        ),
        fails("says nothing in time", vec![Read, Hang], Fault::FirstByteTimeout),
        cuts(
            "stands still in the middle of a body",
            vec![Read, Send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), Hang],
            Fault::BodyTimeout,
        ),
        answers(
            "is slow, with each piece in time",
            vec![
                Read,
                Pause,
                Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"),
                Pause,
                Send("ab"),
                Pause,
                Send("cd"),
                Read,
            ],
            Gets::Answer(200, "abcd"),
        ),
        Trouble {
            requests: &[LONG_POST],
            ..answers(
                "answers before the request is whole",
                vec![Read, Send("HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno"), Hang],
                Gets::Answer(413, "no"),
            )
        },
        answers(
            "says more than its length",
            vec![
                Read,
                Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 Second\r\n\r\n"),
            ],
            Gets::Answer(200, "hi"),
        ),
    ]
}

fn play(steps: &[Step], client: &mut Client) {
    for step in steps {
        match step {
            Read => {
                let head = client.head();
                if head.is_empty() {
                    return;
                }
                if head.starts_with(NEXT_LINE) {
                    return client.try_send(OK);
                }
            }
            Send(bytes) => client.try_send(bytes),
            Pause => std::thread::sleep(PAUSE),
            Hang => drop(client.rest()),
        }
    }
}

impl Trouble {
    /// Says whether another request may follow on the client's connection.
    fn check_client(&self, name: &str, client: &mut Client) -> bool {
        let (last, before) = self.requests.split_last().expect("one");
        for request in before {
            client.send(request);
            assert!(client.until("\r\n\r\nhi").ends_with("hi"), "{name}");
        }
        client.send(last);
        let mut head = client.head();
        while head.starts_with("HTTP/1.1 102 ") {
            head = client.head();
        }
        let starts = |status: u16| head.starts_with(&format!("HTTP/1.1 {status} "));
        match self.gets {
            Gets::Page(status) => {
                assert!(starts(status), "{name}: {head}");
                self.check_page(name, &head);
            }
            Gets::Answer(status, body) => {
                assert!(starts(status), "{name}: {head}");
                assert_eq!(client.bytes(body.len()), body.as_bytes(), "{name}");
            }
            Gets::Cut(status) if starts(status) => {}
            Gets::Cut(_) => {
                assert!(starts(200), "{name}: {head}");
                let rest = client.rest();
                assert!(!rest.ends_with("0\r\n\r\n") && rest.len() < 9, "{name}: {rest:?}");
                return false;
            }
        }
        if let (Gets::Page(_) | Gets::Cut(_), Some(len)) =
            (self.gets, field(&head, "content-length"))
        {
            client.bytes(len.parse().expect("a number"));
        }
        // A request that was not read to its end is the last one.
        self.play.is_some() && *last != LONG_POST
    }

    /// A page of the proxy says whose fault it was and whether a retry is safe.
    fn check_page(&self, name: &str, head: &str) {
        let fault = self.fault.expect("a page");
        let is_safe = self.retry() == Some("safe");
        let message = field(head, "proxy-status").unwrap_or_default();
        let details = format!("details=\"{}/{}, ", fault.name(), self.state);
        assert!(
            message.starts_with("pollux;error=") && message.contains(&details),
            "{name}: {head}"
        );
        assert_eq!(message.ends_with(", a retry is safe\""), is_safe, "{name}: {head}");
        assert_eq!(message.ends_with(": a retry is not safe\""), !is_safe, "{name}: {head}");
    }

    /// The time for what ends with this fault when it takes too long.
    fn has(&self, fault: Fault) -> Duration {
        if self.fault == Some(fault) { SHORT } else { LONG }
    }

    /// The next answer is the next request's. Where it has little time it may be late again.
    fn ask_on(&self, name: &str, client: &mut Client) {
        let may_be_late = self.has(Fault::FirstByteTimeout) == SHORT;
        loop {
            client.send(NEXT);
            let head = client.head();
            let len = field(&head, "content-length").and_then(|len| len.parse().ok());
            let body = client.bytes(len.unwrap_or_else(|| panic!("{name}: {head:?}")));
            if may_be_late && head.starts_with("HTTP/1.1 504 ") {
                continue;
            }
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body == b"hi", "{name}: {head:?}");
            return;
        }
    }

    fn check_log(&self, name: &str, line: &Value) {
        let found = (&line["end"], line["state"].as_str().unwrap_or_default(), &line["tries"]);
        let end = self.fault.map_or("ok", Fault::name);
        assert_eq!(found, (&end.into(), self.state, &self.tries.into()), "{name}: {line}");
        assert_eq!(line["retry"].as_str(), self.retry(), "{name}: {line}");
    }

    /// Whether the client may ask again: no backend has seen the request, or twice is as good as once.
    fn retry(&self) -> Option<&'static str> {
        let request = self.requests.last().expect("one");
        let is_safe = request.starts_with("GET ") || self.play.is_none();
        self.fault.map(|_| if is_safe { "safe" } else { "unsafe" })
    }

    fn row(&self) -> String {
        let gets = match self.gets {
            Gets::Page(status) => status.to_string(),
            Gets::Answer(status, _) => format!("the answer, {status}"),
            Gets::Cut(status) => format!("a reset behind what came, or {status}"),
        };
        let party = match self.fault.map(Fault::party) {
            None => "none",
            Some(Party::Upstream) => "the backend's",
            Some(Party::Client) => "the client's",
            Some(Party::Proxy) => "the proxy's",
        };
        let end = match (self.fault, self.retry()) {
            (Some(fault), Some(retry)) => format!("{}/{}/{retry}", fault.name(), self.state),
            _ => "ok".to_owned(),
        };
        let repeated = if self.tries > 1 { "yes" } else { "no" };
        format!("| {} | {gets} | `{end}` | {party} | {repeated} |\n", self.backend)
    }
}

#[test]
fn what_a_client_gets_of_a_backend_in_trouble() {
    for trouble in troubles() {
        let backend = trouble
            .play
            .clone()
            .map(|steps| Backend::start(move |_, mut it| play(&steps, &mut it)));
        let address = backend.as_ref().map_or_else(unreachable, |backend| backend.address);
        let folder = tempfile::tempdir().expect("a folder");
        let log = |driver: Driver| folder.path().join(driver.to_string());
        let set = |driver, config: &mut ProxyConfig| {
            config.monitoring.access_log = Some(LogTarget::File(log(driver)));
            config.monitoring.access_log_format = LogFormat::Json;
            config.limits.first_byte_timeout = trouble.has(Fault::FirstByteTimeout);
            config.limits.clients.body_timeout = trouble.has(Fault::BodyTimeout);
        };
        on_all_drivers_at_once(&[address], set, |driver, proxy| {
            let name = format!("{driver}: the backend {}", trouble.backend);
            let mut client = proxy.client();
            let continues = trouble.check_client(&name, &mut client);
            let lines = || std::fs::read_to_string(log(driver)).unwrap_or_default();
            let count = trouble.requests.len();
            proxy.await_that("the line in the log", |_| lines().matches('\n').count() == count);
            let line = lines().lines().last().expect("one").to_owned();
            trouble.check_log(&name, &serde_json::from_str(&line).expect("JSON"));
            if let Some(fault) = trouble.fault {
                assert_eq!(proxy.faults(fault), 1, "{name}");
            }
            if continues {
                // What was wrong is over: the next answer is the next request's.
                trouble.ask_on(&name, &mut client);
            }
        });
    }
}

#[test]
fn the_table_of_troubles_in_the_documentation_is_this_one() {
    let mut table = String::from(
        "| the backend | the client gets | end in the log | whose fault | repeated |\n|---|---|---|---|---|\n",
    );
    troubles().iter().for_each(|trouble| table.write_str(&trouble.row()).expect("a String"));
    pollux_settings::kept("proxy.md", "troubles", &table).unwrap_or_else(|why| panic!("{why}"));
}
