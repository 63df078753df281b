//! Metrics over HTTP: one small loop on a thread of its own, which serves a page that the pool
//! writes once a second.
//!
//! A scrape never reaches the pool's thread, and a client that does not read delays no other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, Driver, Group, GroupConfig, GroupError, Limits, ListenAddress, Listeners, Session,
};
use pollux_http::{HeadWriter, Method, Parsed, Request, Status};
use pollux_poller::Mechanism;

/// How old the page may be: scrapers come every few seconds.
const PAGE_EACH: Duration = Duration::from_secs(1);
/// Connections at once.
const SCRAPERS_MAX: u32 = 64;
/// From the accept to the end of the answer.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Where the page is.
const PATH: &str = "/metrics";
/// Room for the head of an answer.
const HEAD_BYTES: usize = 512;

/// The text of the page; replaced as a whole.
type Published = Arc<Mutex<Arc<[u8]>>>;

/// The running endpoint.
pub(super) struct Endpoint {
    group: Group,
    page: Published,
    next: Instant,
}

impl Endpoint {
    /// Listens at `address`.
    pub(super) fn start(address: &ListenAddress) -> Result<Self, GroupError> {
        let page: Published = Arc::new(Mutex::new(Arc::from([].as_slice())));
        let config = GroupConfig {
            listen: vec![address.clone()],
            driver: Driver::Readiness(Mechanism::Poll),
            threads: 1,
            listeners: Listeners::Reuseport,
            cpus: None,
            delays_small_writes: false,
            limits: Limits { connections_max: SCRAPERS_MAX, ..Limits::default() },
        };
        let shared = Arc::clone(&page);
        let make = move |_| Ok::<_, GroupError>(Arc::clone(&shared));
        let group = Group::start::<Scrape, _, _>(&config, make)?;
        Ok(Self { group, page, next: Instant::now() })
    }

    /// Where it listens, with the port that the kernel chose.
    pub(super) fn address(&self) -> String {
        self.group.addresses()[0].to_string()
    }

    /// When the page is to be written again.
    pub(super) fn next_moment(&self) -> Instant {
        self.next
    }

    /// Puts up a new page.
    pub(super) fn publish(&mut self, text: String, now: Instant) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = Arc::from(text.into_bytes());
        self.next = now + PAGE_EACH;
    }

    /// Ends the thread.
    pub(super) fn end(self) {
        self.group.abort();
        // What ended its loop before is of no interest any more.
        let _ = self.group.join();
    }
}

/// One connection: one request, one answer.
#[derive(Debug)]
struct Scrape {
    answer: Vec<u8>,
    sent: usize,
}

impl Session for Scrape {
    type Shared = Published;

    fn accepted(_: &mut Published, actions: &mut Actions<'_>) -> Self {
        actions.set_deadline(actions.now().at + TIME_MAX);
        Self { answer: Vec::new(), sent: 0 }
    }

    fn on_bytes(&mut self, page: &mut Published, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        if !self.answer.is_empty() {
            return input.len();
        }
        let used = match Request::parse(input, &pollux_http::Limits::default()) {
            Parsed::Incomplete => return 0,
            Parsed::Complete(request, len) => {
                self.answer = answer(&request, page);
                len
            }
            Parsed::Rejected(rejection) => {
                self.answer = plain(rejection.status, &[], rejection.reason.as_bytes());
                input.len()
            }
        };
        self.on_drained(page, actions);
        used
    }

    fn on_end(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        if self.answer.is_empty() {
            actions.close();
        }
    }

    fn on_drained(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        let piece = (self.answer.len() - self.sent).min(actions.room());
        actions.send(&self.answer[self.sent..self.sent + piece]);
        self.sent += piece;
        if self.sent < self.answer.len() {
            actions.call_again();
        } else {
            actions.linger();
        }
    }

    fn on_deadline(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        actions.close();
    }

    fn on_drain(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        actions.close();
    }
}

fn answer(request: &Request<'_>, page: &Published) -> Vec<u8> {
    let is_get = request.method == Method::Get;
    if !is_get && request.method != Method::Head {
        return plain(Status::METHOD_NOT_ALLOWED, &[("allow", "GET, HEAD")], b"GET or HEAD\n");
    }
    if request.target.path() != Some(PATH) {
        return plain(Status::NOT_FOUND, &[], b"the metrics are at /metrics\n");
    }
    let text = Arc::clone(&page.lock().unwrap_or_else(PoisonError::into_inner));
    let mut whole = head(Status::OK, &[("cache-control", "no-store")], text.len());
    if is_get {
        whole.extend_from_slice(&text);
    }
    whole
}

fn plain(status: Status, fields: &[(&str, &str)], text: &[u8]) -> Vec<u8> {
    let mut whole = head(status, fields, text.len());
    whole.extend_from_slice(text);
    whole
}

fn head(status: Status, fields: &[(&str, &str)], len_bytes: usize) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let mut writer = HeadWriter::new(&mut head, status);
    writer.field("content-type", b"text/plain; version=0.0.4; charset=utf-8");
    for (name, value) in fields {
        writer.field(name, value.as_bytes());
    }
    writer.content_length(len_bytes as u64).connection(1, true);
    let len = writer.finish().expect("constant fields fit");
    head.truncate(len);
    head
}
