//! Calls of other hosts, answered by this pool, one at a time: what it offers, and calls into it.
//!
//! ```text
//!  request ─► is a permit free? ── yes ─► Local, on a thread that may block ─► reply
//!                     └───────── no ──► "busy": its bridge asks again, and may find another copy
//! ```
//!
//! `exchange` says what is offered; each service has a subscription in the same queue group as
//! those of all bridges that offer it. Calls into the pool are of one client context, made
//! when it is needed and made anew after the pool was away.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::client::PublishErrorKind;
use async_nats::connection::State;
use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt;
use pollux_xatmi::client::{self, CallError, CallFlags, Outgoing, Which};
use pollux_xatmi::control::{Answer, Control, ControlError, Request};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::pool::BRIDGE_PROGRAM;
use pollux_xatmi::queue::Prefix;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::envelope::{Answered, Data, RequestHeader};
use crate::log::Log;

/// How long a bridge that ends waits for the call that it is in.
pub(crate) const LEAVE_TIME_MAX: Duration = Duration::from_secs(3);

/// Serves calls of other hosts. Copies share the permit.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    client: Client,
    local: Arc<Mutex<Local>>,
    permits: Arc<Semaphore>,
    foreign: Arc<AtomicU64>,
    log: Arc<Log>,
}

/// A service that is offered to others.
#[derive(Debug)]
pub(crate) struct Served {
    leave: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Served {
    /// Whether no pool serves it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Takes no more requests; those on their way are asked to try elsewhere. The task ends when
    /// the last of them was.
    pub(crate) fn withdraw(self) -> JoinHandle<()> {
        self.leave.notify_one();
        self.task
    }
}

impl Host {
    pub(crate) fn new(client: Client, environment: Environment, log: Arc<Log>) -> Self {
        let local = Arc::new(Mutex::new(Local::new(environment)));
        let permits = Arc::new(Semaphore::new(1));
        Self { client, local, permits, foreign: Arc::default(), log }
    }

    /// Serves what comes over a subscription.
    pub(crate) fn offer(&self, service: String, requests: Subscriber) -> Served {
        let leave = Arc::new(Notify::new());
        let task = tokio::spawn(self.clone().serve(service, requests, Arc::clone(&leave)));
        Served { leave, task }
    }

    /// Waits until the call that is under way, if there is one, was answered.
    pub(crate) async fn finish(&self) {
        // An error would be that of a closed semaphore, and it is never closed.
        let _ = self.permits.acquire().await;
        if self.client.connection_state() == State::Connected {
            let _ = self.client.flush().await;
        }
    }

    /// Requests so far that were none of a bridge's.
    pub(crate) fn foreign(&self) -> u64 {
        self.foreign.load(Relaxed)
    }

    async fn serve(self, service: String, mut requests: Subscriber, leave: Arc<Notify>) {
        let mut is_leaving = false;
        loop {
            let message = tokio::select! {
                message = requests.next() => match message {
                    Some(message) => message,
                    None => return,
                },
                () = leave.notified(), if !is_leaving => {
                    is_leaving = true;
                    // Without a connection nothing is on its way, and nothing would end a drain.
                    let is_connected = self.client.connection_state() == State::Connected;
                    if !is_connected || requests.drain().await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
            match permit.filter(|_| !is_leaving) {
                Some(permit) => {
                    let host = self.clone();
                    let service = service.clone();
                    tokio::spawn(async move {
                        host.answer(service, message).await;
                        drop(permit);
                    });
                }
                None => self.reply(&message, &Answered::Busy, &None).await,
            }
        }
    }

    async fn answer(&self, service: String, message: Message) {
        let (answered, data) = match RequestHeader::read(message.headers.as_ref(), &message.payload)
        {
            Err(_) => {
                self.foreign.fetch_add(1, Relaxed);
                (failed(Code::InputType), None)
            }
            Ok((asked, data)) => {
                let local = Arc::clone(&self.local);
                let calling = tokio::task::spawn_blocking(move || {
                    let mut local = local.lock().unwrap_or_else(PoisonError::into_inner);
                    local.call(&service, asked, &data)
                });
                calling.await.unwrap_or((failed(Code::ServiceError), None))
            }
        };
        self.reply(&message, &answered, &data).await;
    }

    /// Sends an answer, or the error that it can't be sent.
    async fn reply(&self, message: &Message, answered: &Answered, data: &Data) {
        let Some(inbox) = &message.reply else { return };
        let Err(why) = self.send(inbox, answered, data).await else { return };
        self.log.say(&format!("a reply to {} could not be sent: {why}", message.subject));
        // A connection that is lost takes this along; the caller's time limit ends its call.
        let _ = self.send(inbox, &failed(Code::ServiceError), &None).await;
    }

    async fn send(
        &self,
        inbox: &async_nats::Subject,
        answered: &Answered,
        data: &Data,
    ) -> Result<(), String> {
        let (headers, payload) = answered.write(data)?;
        let len_bytes = payload.len();
        let sent = self.client.publish_with_headers(inbox.clone(), headers, payload.into()).await;
        sent.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => self.too_long(len_bytes),
            _ => error.to_string(),
        })
    }

    fn too_long(&self, len_bytes: usize) -> String {
        too_long(&self.client, len_bytes)
    }
}

/// Why the broker takes no message with so much data, and what would be right.
pub(crate) fn too_long(client: &Client, len_bytes: usize) -> String {
    let max = client.max_payload();
    format!(
        "{len_bytes} bytes and their headers are more than the {max} that the broker takes \
         (max_payload in its configuration)"
    )
}

/// How long the manager may take for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a call without a time limit is kept: its caller may have died.
const CALL_MAX: Duration = Duration::from_secs(3600);

/// How long a call may take.
pub(crate) fn limit_of(asked: RequestHeader) -> Duration {
    asked.timeout.unwrap_or(CALL_MAX).min(CALL_MAX)
}

/// The services that workers of the pool offer, bridges left out.
///
/// # Errors
/// When the manager does not answer.
pub(crate) fn services(prefix: &Prefix) -> Result<BTreeSet<String>, ControlError> {
    let mut names = BTreeSet::new();
    Control::connect(prefix)?.ask(&Request::Services, ANSWER_TIME_MAX, |answer| {
        if let Answer::Services(rows) = answer {
            let here =
                rows.into_iter().filter(|row| row.program != BRIDGE_PROGRAM && row.state != "down");
            names.extend(here.map(|row| row.service));
        }
    })?;
    Ok(names)
}

/// A caller within the pool.
#[derive(Debug)]
pub(crate) struct Local {
    environment: Environment,
    client: Option<client::Client>,
}

impl Local {
    pub(crate) fn new(environment: Environment) -> Self {
        Self { environment, client: None }
    }

    /// Calls `service` for a client on another host; a request without a reply is answered as
    /// soon as it is in the queue.
    pub(crate) fn call(
        &mut self,
        service: &str,
        asked: RequestHeader,
        data: &Data,
    ) -> (Answered, Data) {
        match self.try_call(service, asked, data) {
            Ok(answered) => answered,
            Err(error) => {
                if matches!(error.code(), Code::System | Code::Os) {
                    self.client = None;
                }
                (failed(error.code()), None)
            }
        }
    }

    fn try_call(
        &mut self,
        service: &str,
        asked: RequestHeader,
        data: &Data,
    ) -> Result<(Answered, Data), Error> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(client::Client::open(&self.environment)?),
        };
        let limit = limit_of(asked);
        client.set_next_timeout(Some(limit));
        let flags = CallFlags::SIGNAL_RESTART;
        let outgoing = outgoing(data)?;
        if asked.is_without_reply {
            client.send_only(service, outgoing, flags)?;
            return Ok((done(None, 0, 0), None));
        }
        let descriptor = client.send_request(service, outgoing, flags)?;
        client.set_next_timeout(Some(limit));
        let answer = client.answer(Which::One(descriptor), flags);
        let (error, answer) = match answer {
            Ok(answer) => (None, answer),
            Err(CallError::Failed(answer)) => (Some(Code::ServiceFailed), answer),
            Err(CallError::Error(error)) => {
                // After TPETIME the descriptor would continue to wait.
                let _ = client.cancel(descriptor);
                return Err(error);
            }
        };
        let data = answer.buffer.map(|buffer| (buffer, answer.len_bytes));
        Ok((done(error, answer.rval, answer.urcode), data))
    }
}

fn outgoing(data: &Data) -> Result<Outgoing<'_>, Error> {
    match data {
        None => Ok(Outgoing::NONE),
        Some((buffer, len_bytes)) => Outgoing::of(buffer, *len_bytes),
    }
}

fn done(error: Option<Code>, rval: i32, urcode: i64) -> Answered {
    Answered::Done { error, rval, urcode }
}

/// An error without a word of the service.
pub(crate) fn failed(error: Code) -> Answered {
    done(Some(error), 0, 0)
}
