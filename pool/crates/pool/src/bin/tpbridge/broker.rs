//! The side of a bridge that talks to the broker: threads of its own, one connection.
//!
//! ```text
//!  other hosts ─► `host`: one call at a time ─► the pool at home
//!  main thread ─► call ─► request, repeated while everybody is busy ─► reply, or a TPE error
//!  lists of others ─► `exchange` ─► what to offer at home ─► the main thread is woken
//! ```
//!
//! The main thread is the worker's: it blocks in [`Broker::call`] as in any service, no longer than
//! the call may take. A broker that goes away ends each call under way with TPESVCERR, as its
//! outcome is unknown; the client library connects again. A broker that hangs looks like one that
//! is slow: then the timeout of the call ends it, with TPETIME.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_nats::client::PublishErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectError, ConnectOptions, Event, StatusCode, Subscriber};
use futures_util::StreamExt;
use pollux_settings::command::output;
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::Code;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::envelope::{Answered, Data, RequestHeader};
use crate::exchange::{Exchange, Wanted};
use crate::host;
use crate::host::{Host, LEAVE_TIME_MAX, too_long};
use crate::log::Log;
use crate::settings::{Domain, Login, Settings};

/// The first pause before a request is repeated as everybody was busy; doubled up to the longest.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Messages of one subscription that wait here; each of them is answered at once.
const WAITING_MAX: usize = 1024;
/// How long the start waits for a connection; a server that does not start is started anew.
const FIRST_TRY: Duration = Duration::from_secs(1);
/// Threads of the runtime beside the main thread.
const THREADS: usize = 1;

/// A connection to the broker and what is exchanged over it.
#[derive(Debug)]
pub(crate) struct Broker {
    runtime: Runtime,
    client: Client,
    /// As the settings have them, without the login.
    servers: String,
    domain: Domain,
    /// Counts how often the connection was lost.
    lost: watch::Receiver<u64>,
    wanted: Arc<Wanted>,
    host: Host,
    log: Arc<Log>,
    /// Where this worker's calls are answered. A subject for each of them, so that the reply to one
    /// that was given up is never taken for another's.
    inbox: String,
    replies: Mutex<Subscriber>,
    asked: AtomicU64,
    /// What is exchanged beside the calls, until the bridge leaves.
    exchange: Mutex<Option<JoinHandle<()>>>,
    leave: watch::Sender<bool>,
}

impl Broker {
    /// Connects, now or as soon as there is a broker, and begins to serve other hosts.
    ///
    /// # Errors
    /// For an address that is none, and when threads or descriptors are short.
    pub(crate) fn start(settings: &Settings, environment: &Environment) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()
            .map_err(|error| format!("the threads of the bridge can't start: {error}"))?;
        let log = Arc::new(Log::default());
        let ((lost_now, lost), (came_now, came)) = (watch::channel(0), watch::channel(0));
        let wanted = Wanted::new().map_err(|error| format!("no descriptor is left: {error}"))?;
        let wanted = Arc::new(wanted);
        let line = Line {
            lost: lost_now,
            came: came_now,
            log: Arc::clone(&log),
            wanted: Arc::clone(&wanted),
        };
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", settings.servers);
        let client = runtime.block_on(connect(settings, line)).map_err(|error| failed(&error))?;
        let inbox = client.new_inbox();
        let replies = runtime.block_on(client.subscribe(format!("{inbox}.*")));
        let replies = Mutex::new(replies.map_err(|error| failed(&error))?);
        let host = Host::new(client.clone(), environment.clone(), Arc::clone(&log));
        let exchange = Exchange::new(
            client.clone(),
            settings,
            environment.prefix.clone(),
            host.clone(),
            Arc::clone(&wanted),
            Arc::clone(&log),
        );
        let (leave, leaving) = watch::channel(false);
        let exchange = Mutex::new(Some(runtime.spawn(exchange.run(came, leaving))));
        let domain = settings.domain.clone();
        let asked = AtomicU64::new(0);
        Ok(Self {
            runtime,
            client,
            servers: settings.servers.to_string(),
            domain,
            lost,
            wanted,
            host,
            log,
            inbox,
            replies,
            asked,
            exchange,
            leave,
        })
    }

    /// What others offer and the pool at home does not.
    pub(crate) fn wanted(&self) -> Arc<Wanted> {
        Arc::clone(&self.wanted)
    }

    /// Why no call goes over at this moment; none when calls do.
    pub(crate) fn trouble(&self) -> Option<String> {
        let is_connected = self.client.connection_state() == State::Connected;
        (!is_connected).then(|| {
            format!("no connection to the broker {}: calls end in TPESVCERR", self.servers)
        })
    }

    /// Writes a line to the worker's log.
    pub(crate) fn say(&self, line: &str) {
        self.log.say(line);
    }

    /// Calls `service` on another host and waits for the answer.
    pub(crate) fn call(
        &self,
        service: &str,
        asked: RequestHeader,
        data: &Data,
    ) -> (Answered, Data) {
        let mut lost = self.lost.clone();
        lost.mark_unchanged();
        if self.client.connection_state() != State::Connected {
            return failed(Code::ServiceError);
        }
        let end = Instant::now() + host::limit_of(asked);
        self.runtime.block_on(async {
            tokio::select! {
                answered = self.ask(service, asked, data, end) => answered,
                () = tokio::time::sleep_until(end.into()) => failed(Code::Time),
                _ = lost.changed() => failed(Code::ServiceError),
            }
        })
    }

    /// Asks until a bridge has time.
    async fn ask(
        &self,
        service: &str,
        asked: RequestHeader,
        data: &Data,
        end: Instant,
    ) -> (Answered, Data) {
        let subject = self.domain.call(service);
        let mut replies = self.replies.lock().await;
        let mut pause = BUSY_PAUSE;
        loop {
            // The server must not work for longer than is left now.
            let timeout = asked.timeout.map(|_| end.saturating_duration_since(Instant::now()));
            let Ok((headers, payload)) = (RequestHeader { timeout, ..asked }).write(data) else {
                return failed(Code::InputType);
            };
            let len_bytes = payload.len();
            let inbox = format!("{}.{}", self.inbox, self.asked.fetch_add(1, Relaxed));
            let to = subject.clone();
            let reply = inbox.clone();
            let sent =
                self.client.publish_with_reply_and_headers(to, reply, headers, payload.into());
            if let Err(error) = sent.await {
                if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                    let why = too_long(&self.client, len_bytes);
                    self.log.say(&format!("a request for {service} could not be sent: {why}"));
                }
                return failed(Code::ServiceError);
            }
            let message = loop {
                match replies.next().await {
                    Some(message) if message.subject.as_str() == inbox => break message,
                    Some(_) => {}
                    None => return failed(Code::ServiceError),
                }
            };
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                return failed(Code::NoEntry);
            }
            match Answered::read(message.headers.as_ref(), &message.payload) {
                Ok((Answered::Busy, _)) => {}
                Ok(answered) => return answered,
                Err(why) => {
                    self.log.say(&format!(
                        "what {service} answered was not a reply of a bridge: {why}"
                    ));
                    return failed(Code::ServiceError);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BUSY_PAUSE_MAX);
        }
    }

    /// Serves other hosts no longer; the call that one of them is waiting for is answered first, if
    /// that takes no longer than [`LEAVE_TIME_MAX`].
    pub(crate) fn leave(&self) {
        self.leave.send_replace(true);
        let leaving = async {
            if let Some(exchange) = self.exchange.lock().await.take() {
                // One that panicked has left as well.
                let _ = exchange.await;
            }
            self.host.finish().await;
        };
        self.runtime.block_on(async {
            // A caller that waits for longer ends by its own time limit.
            let _ = tokio::time::timeout(LEAVE_TIME_MAX, leaving).await;
        });
    }
}

fn failed(code: Code) -> (Answered, Data) {
    (host::failed(code), None)
}

/// Where changes of the connection are logged.
struct Line {
    lost: watch::Sender<u64>,
    came: watch::Sender<u64>,
    log: Arc<Log>,
    /// Woken by each change.
    wanted: Arc<Wanted>,
}

impl Line {
    fn note(&self, event: &Event, servers: &str) {
        match event {
            Event::Connected => self.came.send_modify(|count| *count += 1),
            Event::Disconnected | Event::Closed => self.lost.send_modify(|count| *count += 1),
            _ => {}
        }
        self.log.say(&format!("{servers}: {event}"));
        self.wanted.wake();
    }
}

/// Connects at once, or leaves it to the client to try again and again.
///
/// # Errors
/// For what will never be a connection.
async fn connect(settings: &Settings, line: Line) -> Result<Client, ConnectError> {
    let line = Arc::new(line);
    let servers = &settings.servers;
    let first = options(settings, &line).connect(servers.addresses.as_slice());
    let why = match tokio::time::timeout(FIRST_TRY, first).await {
        Ok(Ok(client)) => return Ok(client),
        // Of later tries the client gives only the kind of the error.
        Ok(Err(error)) => output::error_chain(&error),
        Err(_) => format!("no answer within {FIRST_TRY:?}"),
    };
    line.log.say(&format!("{servers}: {why}; it is tried again until there is a connection"));
    let options = options(settings, &line).retry_on_initial_connect();
    options.connect(servers.addresses.as_slice()).await
}

fn options(settings: &Settings, line: &Arc<Line>) -> ConnectOptions {
    let line = Arc::clone(line);
    let servers = settings.servers.to_string();
    let mut options = ConnectOptions::new()
        .name(format!("pollux bridge of {}", settings.pool))
        .subscription_capacity(WAITING_MAX)
        .event_callback(move |event| {
            line.note(&event, &servers);
            std::future::ready(())
        });
    options = match settings.servers.login.clone() {
        None => options,
        Some(Login::Token(token)) => options.token(token),
        Some(Login::User { name, password }) => options.user_and_password(name, password),
    };
    match settings.ca.clone() {
        None => options,
        Some(ca) => options.add_root_certificates(ca),
    }
}
