//! The pool at home: what it offers, and calls into it for other hosts.
//!
//! The broker's side asks and calls here, on threads that may block. One client context, made
//! when it is needed and made anew after the pool was away.

use std::collections::BTreeSet;
use std::time::Duration;

use pollux_xatmi::client::{CallError, CallFlags, Client};
use pollux_xatmi::control::{Answer, AskError, Control, Request};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::pool::BRIDGE_PROGRAM;
use pollux_xatmi::queue::Prefix;

use crate::envelope::{Answered, Asked, Data};

/// How long the manager may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a call without a time limit is kept: its caller may have died.
const CALL_MAX: Duration = Duration::from_secs(3600);

/// How long a call may take.
pub(crate) fn limit_of(asked: Asked) -> Duration {
    asked.timeout.unwrap_or(CALL_MAX).min(CALL_MAX)
}

/// The services that workers of the pool offer, bridges left out.
///
/// # Errors
/// When the manager does not answer.
pub(crate) fn services(prefix: &Prefix) -> Result<BTreeSet<String>, AskError> {
    let mut names = BTreeSet::new();
    Control::connect(prefix)?.ask(&Request::Services, PATIENCE, |answer| {
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
    client: Option<Client>,
}

impl Local {
    pub(crate) fn new(environment: Environment) -> Self {
        Self { environment, client: None }
    }

    /// Calls `service` for a client on another host; a request without a reply is answered as
    /// soon as it is in the queue.
    pub(crate) fn call(&mut self, service: &str, asked: Asked, data: &Data) -> (Answered, Data) {
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
        asked: Asked,
        data: &Data,
    ) -> Result<(Answered, Data), Error> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::open(&self.environment)?),
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
        let answer = client.answer(pollux_xatmi::client::Which::One(descriptor), flags);
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

fn outgoing(data: &Data) -> Result<pollux_xatmi::client::Outgoing<'_>, Error> {
    match data {
        None => Ok(pollux_xatmi::client::Outgoing::NONE),
        Some((buffer, len_bytes)) => pollux_xatmi::client::Outgoing::of(buffer, *len_bytes),
    }
}

fn done(error: Option<Code>, rval: i32, urcode: i64) -> Answered {
    Answered::Done { error, rval, urcode }
}

/// An error without a word of the service.
pub(crate) fn failed(error: Code) -> Answered {
    done(Some(error), 0, 0)
}
