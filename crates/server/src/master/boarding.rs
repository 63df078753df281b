//! A worker's side: what its master left it, and the link between both.
//!
//! ```text
//!  master ── environment: numbers of descriptors ──► worker: takes them
//!         ◄──────────── link: a stream of frames ───────────►
//! ```
//!
//! A thread reads the link and wakes the one that waits for signals. The end of the link is the
//! end of the master: the worker drains then, whatever killed it.

use crate::error::in_words;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pollux_engine::Signals;
use pollux_poller::Waker;
use pollux_sys::inherited;

use super::frames::{Frame, Frames, Kind};
use super::holding::ProxySockets;
use crate::proxy::{ProxyConfig, standing};
use crate::stats::{Ended, Overview, Reloads, metrics};
use crate::{Server, ServerError};

/// Where a master names what it left its worker.
pub(super) const VARIABLE: &str = "POLLUX_PROXY_WORKER";
/// What stands between how backends stood and the file with the settings.
pub(super) const STANDING_END: char = '\0';
/// A master that takes nothing for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a master left its worker.
#[derive(Debug)]
pub struct Boarding {
    link: UnixStream,
    file: Option<(String, String)>,
    /// How backends stood for the worker before.
    standing: String,
    sockets: ProxySockets,
}

/// What the master says.
#[derive(Debug)]
pub(crate) enum Order {
    Drain,
    Reopen,
    Ended(String),
    Reloads(Reloads),
    /// How backends stood for the worker before: as this one was told at its start, and when it began to
    /// serve.
    Standing {
        before: String,
        now: String,
    },
    /// The master is gone.
    Gone,
}

/// The worker's end of the link.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    orders: Receiver<Order>,
    /// How backends stood when the master was told last.
    standing: String,
    is_broken: bool,
}

impl Boarding {
    /// What was left to this process; none where it was not started by a master.
    ///
    /// # Errors
    /// What was named is not there.
    pub fn find() -> io::Result<Option<Self>> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        let wrong = || io::Error::other(format!("{VARIABLE}={text}"));
        let mut words = text.splitn(3, ' ');
        let mut number = || {
            let number = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            inherited::take(number)
        };
        let link = UnixStream::from(number()?);
        let mut settings = File::from(number()?);
        let sockets = ProxySockets::inherited(words.next().ok_or_else(wrong)?)?;
        let mut text = String::new();
        settings.rewind()?;
        settings.read_to_string(&mut text)?;
        let (standing, file) = text.split_once(STANDING_END).ok_or_else(wrong)?;
        let file = file.split_once('\n').map(|(name, text)| (name.to_owned(), text.to_owned()));
        link.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Some(Self { link, file, standing: standing.to_owned(), sockets }))
    }

    /// The name and the text of the file with the settings, as the master read it.
    #[must_use]
    pub fn file(&self) -> Option<(&str, &str)> {
        self.file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Tells the master why there will be no worker.
    pub fn failed(mut self, why: &str) {
        // Without a master nobody wants to know.
        let _ = self.link.write_all(&Frame::new(Kind::Failed, why).bytes());
    }

    /// Starts the worker's loops and runs them until the master, or a signal, ends them.
    ///
    /// # Errors
    /// As [`Server::start_proxy`] and [`Server::run`]. The master was told.
    pub fn run(self, config: &ProxyConfig, signals: &mut Signals) -> Result<(), ServerError> {
        let master = Some((signals.waker(), self.standing.as_str()));
        let server = match Server::start_proxy_on(config, &self.sockets, master) {
            Ok(server) => server,
            Err(error) => {
                self.failed(&in_words(&error));
                return Err(error);
            }
        };
        let Self { link, sockets, .. } = self;
        // From here on the loops alone have them, and close them when they drain: who connects then is
        // refused, or comes to whoever listens there next.
        drop(sockets);
        let mut link = Link::open(link, signals.waker());
        link.send(Kind::Ready, server.banner().join("\n"));
        server.run_under(signals, Some(&mut link))
    }
}

impl Link {
    fn open(stream: UnixStream, waker: Waker) -> Self {
        let (sender, orders) = channel();
        let reading = stream.try_clone();
        let is_broken = reading.is_err();
        if let Ok(reading) = reading {
            std::thread::spawn(move || read(reading, &sender, &waker));
        }
        Self { stream, orders, standing: String::new(), is_broken }
    }

    /// What the master has said since the last call.
    pub(crate) fn orders(&self) -> Vec<Order> {
        self.orders.try_iter().collect()
    }

    /// Tells the master what was counted, and that a reload is wanted.
    pub(crate) fn report(&mut self, overview: &Overview) {
        self.ask(overview);
        self.send(Kind::Counts, Ended::of_page(&metrics(overview)).page());
    }

    /// Tells how backends stand, if that is new, and passes a wish for a reload on: in this order, as the
    /// reload needs to know the orders that came before it.
    pub(crate) fn ask(&mut self, overview: &Overview) {
        let standing = standing::tell(&overview.backends);
        if standing != self.standing {
            self.send(Kind::Standing, standing.as_str());
            self.standing = standing;
        }
        if let Some(number) = overview.supervised.takes_reload() {
            self.send(Kind::Reload, number.to_string());
        }
    }

    fn send(&mut self, kind: Kind, text: impl Into<String>) {
        // Behind a frame that was cut nothing can be read: the reader sees the end instead.
        if !self.is_broken && self.stream.write_all(&Frame::new(kind, text).bytes()).is_err() {
            self.is_broken = true;
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Passes on what comes until the stream ends.
fn read(mut stream: UnixStream, orders: &Sender<Order>, waker: &Waker) {
    let mut frames = Frames::default();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let len = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(len) if len > 0 => len,
            _ => break,
        };
        frames.feed(&piece[..len]);
        loop {
            let order = match frames.next() {
                Ok(None) => break,
                Ok(Some(Frame { kind, text })) => match kind {
                    Kind::Drain => Order::Drain,
                    Kind::Reopen => Order::Reopen,
                    Kind::Ended => Order::Ended(text),
                    Kind::Reloads => Order::Reloads(reloads(&text)),
                    Kind::Standing => standing_of(&text),
                    Kind::Ready | Kind::Failed | Kind::Counts | Kind::Reload => continue,
                },
                Err(super::frames::Garbled) => return gone(orders, waker),
            };
            let _ = orders.send(order);
            waker.wake();
        }
    }
    gone(orders, waker);
}

/// What a frame says of reloads: how many of this worker's are answered, how many went how, and why the
/// last one failed.
fn reloads(text: &str) -> Reloads {
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default().to_owned();
    Reloads { answered: line().parse().unwrap_or_default(), counts: line(), why: line() }
}

/// What a frame says of how backends stand.
fn standing_of(text: &str) -> Order {
    let (before, now) = text.split_once(STANDING_END).unwrap_or_default();
    Order::Standing { before: before.to_owned(), now: now.to_owned() }
}

fn gone(orders: &Sender<Order>, waker: &Waker) {
    let _ = orders.send(Order::Gone);
    waker.wake();
}
