//! The side of a bridge that talks to the broker: threads of its own, one connection.
//!
//! ```text
//!  other hosts ─► subscriptions, one for each exported service ─► one call at a time ─► Local
//!                  a second one at the same time is told "busy", and its bridge asks again
//!  main thread ─► call ─► request, repeated while everybody is busy ─► reply, or a TPE error
//!  news of others ─► Others ─► what to offer at home ─► the main thread is woken
//! ```
//!
//! The main thread is the worker's: it blocks in [`Broker::call`] as in any service. A broker that
//! goes away ends each call under way with TPESVCERR, as nobody knows what became of it; the
//! connection comes back by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, Event, Message, RequestErrorKind, Subscriber};
use futures_util::StreamExt;
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::Prefix;
use rustix::event::EventfdFlags;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::envelope::{Answered, Asked, Data};
use crate::local::{self, Local};
use crate::news::{News, Others};
use crate::settings::Settings;
use crate::subject::{Domain, GROUP};

/// The first pause before a request is repeated as everybody was busy; doubled up to the longest.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Messages of one subscription that wait here; each of them is answered at once.
const WAITING_MAX: usize = 1024;
/// How often the pool at home is asked what it offers.
const LOOK_HOME: Duration = Duration::from_secs(1);
/// Threads of the runtime beside the main thread.
const THREADS: usize = 1;

/// The services to offer at home, and the means to say that they changed.
#[derive(Debug)]
pub(crate) struct Wanted {
    services: Mutex<BTreeSet<String>>,
    changed: OwnedFd,
}

impl Wanted {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let changed = rustix::event::eventfd(0, flags)?;
        Ok(Self { services: Mutex::default(), changed })
    }

    /// Becomes readable when the services changed.
    pub(crate) fn changed(&self) -> io::Result<OwnedFd> {
        self.changed.as_fd().try_clone_to_owned()
    }

    /// What is to be offered now.
    pub(crate) fn services(&self) -> BTreeSet<String> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, services: BTreeSet<String>) {
        let mut known = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != services {
            *known = services;
            // It counts to 2^64: a write can't fail for want of room.
            let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
        }
    }
}

/// A connection to the broker and what goes on over it.
#[derive(Debug)]
pub(crate) struct Broker {
    runtime: Runtime,
    client: Client,
    domain: Domain,
    /// Counts how often the connection was lost.
    lost: watch::Receiver<u64>,
    wanted: Arc<Wanted>,
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
        let (lost_now, lost) = watch::channel(0);
        let client = runtime
            .block_on(connect(settings, lost_now))
            .map_err(|error| format!("{}: {error}", settings.nats))?;
        let wanted = Wanted::new().map_err(|error| format!("no descriptor is left: {error}"))?;
        let wanted = Arc::new(wanted);
        let exchange = Exchange {
            client: client.clone(),
            domain: settings.domain.clone(),
            prefix: environment.prefix.clone(),
            exports: settings.exports.clone(),
            pool: settings.pool.clone(),
            refresh: settings.refresh,
            host: Host::new(client.clone(), environment.clone()),
            wanted: Arc::clone(&wanted),
        };
        runtime.spawn(exchange.run());
        Ok(Self { runtime, client, domain: settings.domain.clone(), lost, wanted })
    }

    /// What others offer and the pool at home does not.
    pub(crate) fn wanted(&self) -> Arc<Wanted> {
        Arc::clone(&self.wanted)
    }

    /// Calls `service` on another host and waits for the answer.
    pub(crate) fn call(&self, service: &str, asked: Asked, data: &Data) -> (Answered, Data) {
        let Ok((headers, payload)) = asked.write(data) else {
            return (local::failed(Code::InputType), None);
        };
        let mut lost = self.lost.clone();
        lost.mark_unchanged();
        if self.client.connection_state() != State::Connected {
            return (local::failed(Code::ServiceError), None);
        }
        let subject = self.domain.call(service);
        let end = Instant::now() + local::limit_of(asked);
        self.runtime.block_on(async {
            let asking = self.ask(subject, headers, payload.into(), end);
            tokio::select! {
                answered = asking => answered,
                // A broker that hangs takes nothing any more, and only the reply has a limit.
                () = tokio::time::sleep_until(end.into()) => (local::failed(Code::Time), None),
                _ = lost.changed() => (local::failed(Code::ServiceError), None),
                // A broker that stands still takes no request either.
                () = tokio::time::sleep_until(end.into()) => (local::failed(Code::Time), None),
            }
        })
    }

    async fn ask(
        &self,
        subject: String,
        headers: async_nats::HeaderMap,
        payload: bytes::Bytes,
        end: Instant,
    ) -> (Answered, Data) {
        let mut pause = BUSY_PAUSE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let request = async_nats::Request::new()
                .payload(payload.clone())
                .headers(headers.clone())
                .timeout(Some(left));
            match self.client.send_request(subject.clone(), request).await {
                Ok(message) => match Answered::read(message.headers.as_ref(), &message.payload) {
                    Ok((Answered::Busy, _)) => {}
                    Ok(answered) => return answered,
                    Err(_) => return (local::failed(Code::ServiceError), None),
                },
                Err(error) => return (local::failed(code_of(error.kind())), None),
            }
            if Instant::now() + pause >= end {
                return (local::failed(Code::Time), None);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BUSY_PAUSE_MAX);
        }
    }
}

fn code_of(kind: RequestErrorKind) -> Code {
    match kind {
        RequestErrorKind::NoResponders => Code::NoEntry,
        RequestErrorKind::TimedOut => Code::Time,
        RequestErrorKind::MaxPayloadExceeded => Code::Limit,
        RequestErrorKind::InvalidSubject | RequestErrorKind::Other => Code::ServiceError,
    }
}

async fn connect(
    settings: &Settings,
    lost: watch::Sender<u64>,
) -> Result<Client, async_nats::ConnectError> {
    let lost = Arc::new(lost);
    async_nats::ConnectOptions::new()
        .name(format!("pollux bridge of {}", settings.pool))
        .retry_on_initial_connect()
        .subscription_capacity(WAITING_MAX)
        .event_callback(move |event| {
            let lost = Arc::clone(&lost);
            async move {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    lost.send_modify(|count| *count += 1);
                }
            }
        })
        .connect(settings.nats.as_str())
        .await
}

/// Serves calls of other hosts, one at a time.
#[derive(Clone)]
struct Host {
    client: Client,
    local: Arc<Mutex<Local>>,
    seats: Arc<Semaphore>,
}

impl Host {
    fn new(client: Client, environment: Environment) -> Self {
        let local = Arc::new(Mutex::new(Local::new(environment)));
        Self { client, local, seats: Arc::new(Semaphore::new(1)) }
    }

    /// Serves `service` until the subscription is dropped.
    async fn serve(self, service: String, mut requests: Subscriber) {
        while let Some(message) = requests.next().await {
            match Arc::clone(&self.seats).try_acquire_owned() {
                Ok(seat) => {
                    let (host, service) = (self.clone(), service.clone());
                    tokio::spawn(async move {
                        host.answer(service, message).await;
                        drop(seat);
                    });
                }
                Err(_) => self.reply(&message, &Answered::Busy, &None).await,
            }
        }
    }

    async fn answer(&self, service: String, message: Message) {
        let (answered, data) = match Asked::read(message.headers.as_ref(), &message.payload) {
            Err(_) => (local::failed(Code::InputType), None),
            Ok((asked, data)) => {
                let local = Arc::clone(&self.local);
                let calling = tokio::task::spawn_blocking(move || {
                    let mut local = local.lock().unwrap_or_else(PoisonError::into_inner);
                    local.call(&service, asked, &data)
                });
                calling.await.unwrap_or((local::failed(Code::ServiceError), None))
            }
        };
        self.reply(&message, &answered, &data).await;
    }

    async fn reply(&self, message: &Message, answered: &Answered, data: &Data) {
        let Some(inbox) = message.reply.clone() else { return };
        let written = answered
            .write(data)
            .ok()
            .filter(|(_, payload)| payload.len() <= self.client.max_payload());
        let written = written.or_else(|| local::failed(Code::ServiceError).write(&None).ok());
        let Some((headers, payload)) = written else { return };
        // A broker that is away takes the caller's connection with it or not; its time limit ends
        // the call in either case.
        let _ = self.client.publish_with_headers(inbox, headers, payload.into()).await;
    }
}

/// Keeps subscriptions, news and wanted services in step with the pool and the others.
struct Exchange {
    client: Client,
    domain: Domain,
    prefix: Prefix,
    exports: BTreeSet<String>,
    pool: String,
    refresh: Duration,
    host: Host,
    wanted: Arc<Wanted>,
}

impl Exchange {
    async fn run(self) {
        loop {
            // Both end only with the connection object itself; then there is nothing to do.
            let (news, who) = (self.domain.news(), self.domain.who());
            let (Ok(news), Ok(who)) =
                (self.client.subscribe(news).await, self.client.subscribe(who).await)
            else {
                return;
            };
            self.exchange(news, who).await;
        }
    }

    async fn exchange(&self, mut news: Subscriber, mut who: Subscriber) {
        let mut others = Others::new(self.pool.clone());
        let mut served = BTreeMap::new();
        let mut home = BTreeSet::new();
        let mut look = tokio::time::interval(LOOK_HOME);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told: Option<Instant> = None;
        let _ = self.client.publish(self.domain.who(), "".into()).await;
        loop {
            tokio::select! {
                _ = look.tick() => {
                    let prefix = self.prefix.clone();
                    let asked = tokio::task::spawn_blocking(move || local::services(&prefix)).await;
                    if let Ok(Ok(services)) = asked {
                        home = services;
                    }
                    let has_changed = self.subscribe(&home, &mut served).await;
                    if has_changed || self.is_time(told) {
                        self.tell(&served).await;
                        told = Some(Instant::now());
                    }
                }
                message = news.next() => {
                    let Some(message) = message else { return };
                    match serde_json::from_slice::<News>(&message.payload) {
                        Ok(news) => others.hear(news, Instant::now()),
                        Err(_) => others.dropped += 1,
                    }
                }
                message = who.next() => {
                    if message.is_none() { return }
                    self.tell(&served).await;
                }
            }
            self.wanted.set(others.wanted(&home, Instant::now()));
        }
    }

    /// Whether what is offered has to be said again.
    fn is_time(&self, told: Option<Instant>) -> bool {
        told.is_none_or(|at| !self.refresh.is_zero() && at.elapsed() >= self.refresh)
    }

    /// Serves what is exported and here, and nothing else; whether that changed anything.
    async fn subscribe(
        &self,
        home: &BTreeSet<String>,
        served: &mut BTreeMap<String, tokio::task::JoinHandle<()>>,
    ) -> bool {
        let offered: BTreeSet<_> = self.exports.intersection(home).cloned().collect();
        let before = served.len();
        served.retain(|service, task| {
            let stays = offered.contains(service) && !task.is_finished();
            if !stays {
                // Its subscription ends with it, so that nobody asks here any more.
                task.abort();
            }
            stays
        });
        let mut has_changed = served.len() != before;
        for service in offered {
            if served.contains_key(&service) {
                continue;
            }
            let subject = self.domain.call(&service);
            if let Ok(requests) = self.client.queue_subscribe(subject, GROUP.to_owned()).await {
                let task = tokio::spawn(self.host.clone().serve(service.clone(), requests));
                served.insert(service, task);
                has_changed = true;
            }
        }
        has_changed
    }

    async fn tell(&self, served: &BTreeMap<String, tokio::task::JoinHandle<()>>) {
        let (pool, services) = (self.pool.clone(), served.keys().cloned().collect());
        let news = News { pool, services, refresh_s: self.refresh.as_secs() };
        let Ok(text) = serde_json::to_vec(&news) else { return };
        // Told again after a period, whatever became of it.
        let _ = self.client.publish(self.domain.news(), text.into()).await;
    }
}
