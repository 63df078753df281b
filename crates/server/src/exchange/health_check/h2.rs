//! A check of a backend by HTTP/2: one stream that asks for a path, or the health service of gRPC for a service.
//!
//! The answer of the latter is a message of gRPC, a byte and a length in front, of which one field counts: `status`, which is
//! 1 where the service is serving.

use std::borrow::Cow;

use pollux_engine::Actions;
use pollux_http::h2::{Ask, Connection, ErrorCode, Event, Role, Scratch, Settings};
use pollux_http::{Field, Fields, Limits, Method};

use crate::config::Check;
use crate::exchange::h2_output::write_frames;

/// What gRPC puts in front of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Longest answer that is looked at: one of a health service has two bytes.
const ANSWER_BYTES_MAX: usize = 1024;
/// Field 1, a number: 1, as the health service says that it is serving.
const SERVING: [u8; 2] = [0x08, 0x01];
const HEALTH_PATH: &str = "/grpc.health.v1.Health/Check";

/// One check under way.
#[derive(Debug)]
pub(super) struct StreamCheck {
    connection: Connection<()>,
    /// Whether gRPC is asked.
    is_grpc: bool,
    answer: Vec<u8>,
}

impl StreamCheck {
    /// Sends what the check asks, which is not for a connect alone.
    pub(super) fn begin(
        check: &Check,
        host: &str,
        is_encrypted: bool,
        actions: &mut Actions<'_>,
    ) -> Self {
        let mut connection = Connection::new(Role::Client, Settings::DEFAULT);
        let scheme = if is_encrypted { "https" } else { "http" };
        let agent = ("user-agent", "pollux-check");
        let (method, path, fields, message) = match check {
            Check::Grpc(service) => {
                let grpc = ("content-type", "application/grpc");
                let fields = vec![grpc, ("te", "trailers"), agent];
                (Method::Post, HEALTH_PATH, fields, Some(question(service)))
            }
            Check::Http(path) => (Method::Get, &**path, vec![agent], None),
            Check::None | Check::Tcp => unreachable!("nothing is asked then"),
        };
        let field =
            |(name, value): &(&'static str, &'static str)| Field { name, value: value.as_bytes() };
        let fields: Vec<Field<'_>> = fields.iter().map(field).collect();
        let ask = Ask { method, scheme, authority: host, path, fields: &fields };
        write_frames(actions, |out| {
            connection.start(out);
            let stream = connection.ask(out, &ask, message.is_none(), ());
            let stream = stream.expect("the first one may be begun");
            if let Some(message) = &message {
                connection.send_data(out, stream, message, true);
            }
        });
        Self { connection, is_grpc: message.is_some(), answer: Vec::new() }
    }

    /// Takes what came; says how much of it was used, and how the check has ended, once that is known: the backend was sent
    /// GOAWAY then.
    pub(super) fn read(
        &mut self,
        scratch: &mut Scratch,
        limits: &Limits,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> (usize, Option<Verdict>) {
        let now_ms = actions.now().at.as_nanos() / 1_000_000;
        let mut used = 0;
        while used < input.len() {
            let connection = &mut self.connection;
            let read = write_frames(actions, |out| {
                let read = connection.read(&input[used..], scratch, out, limits, now_ms);
                read.inspect_err(|fault| connection.fail(out, fault))
            });
            let step = match read {
                Ok(step) => step,
                Err(fault) => {
                    let failed = Verdict::Failed(fault.to_string().into(), fault.code);
                    return (input.len(), Some(failed));
                }
            };
            used += step.used;
            let Some(event) = step.event else { break };
            if matches!(event, Event::NoRoom) {
                actions.notify_when_sent();
                break;
            }
            let told = verdict(self.is_grpc, &mut self.answer, &event);
            if let Some(told) = told {
                self.say_goodbye(actions);
                let failed = |why| Verdict::Failed(why, ErrorCode::NO_ERROR);
                return (input.len(), Some(told.map_or_else(failed, |()| Verdict::Passed)));
            }
        }
        (used, None)
    }

    /// Nothing else is asked.
    pub(super) fn say_goodbye(&mut self, actions: &mut Actions<'_>) {
        write_frames(actions, |out| self.connection.end(out));
    }
}

/// How a check has ended.
#[derive(Debug)]
pub(super) enum Verdict {
    Passed,
    /// Why, and the code that the backend had for it.
    Failed(Cow<'static, str>, ErrorCode),
}

/// Whether the check has passed, and why not, where this tells.
fn verdict(
    is_grpc: bool,
    answer: &mut Vec<u8>,
    event: &Event<'_, ()>,
) -> Option<Result<(), Cow<'static, str>>> {
    match *event {
        Event::Response { response, .. } if response.facts.is_interim() => None,
        Event::Response { response, .. } if !is_grpc => {
            let status = response.facts.status.code();
            let is_good = matches!(status, 200..=399);
            let why = || format!("status {status}; expected one from 200 to 399").into();
            Some(is_good.then_some(()).ok_or_else(why))
        }
        Event::Response { response, ends, .. } => {
            let status = response.facts.status.code();
            if status != 200 {
                return Some(Err(format!("status {status}; expected 200, as gRPC has it").into()));
            }
            // An answer of a head alone is one that failed, or lacks its message.
            let said = response.fields.first("grpc-status").unwrap_or_default();
            ends.then(|| Err(not_serving(said, &[])))
        }
        Event::Data { data, ends, .. } => {
            answer.extend_from_slice(data);
            // It ends with fields that say how it went.
            let is_none = ends || answer.len() > ANSWER_BYTES_MAX;
            is_none.then_some(Err("the answer is not one of the health service of gRPC".into()))
        }
        Event::Trailers { fields, .. } => {
            let said = fields.first("grpc-status").unwrap_or_default();
            Some(is_serving(answer, fields).then_some(()).ok_or_else(|| not_serving(said, answer)))
        }
        Event::Reset { code, .. } => Some(Err(format!("its stream was reset: {code}").into())),
        Event::Malformed { rejection, .. } => {
            Some(Err(format!("{} ({})", rejection.reason, rejection.rfc).into()))
        }
        Event::GoneAway { last: 0, code } => {
            Some(Err(format!("the connection ends without an answer: {code}").into()))
        }
        _ => None,
    }
}

/// What an answer of the health service says that does not pass: its `grpc-status`, and its message.
fn not_serving(status: &[u8], message: &[u8]) -> Cow<'static, str> {
    if status != b"0" {
        let said =
            if status.is_empty() { "none".into() } else { status.escape_ascii().to_string() };
        return format!("grpc-status {said}; expected 0").into();
    }
    let said = message.get(PREFIX_BYTES..).unwrap_or_default();
    let number = said.get(1).copied().filter(|_| said.len() == SERVING.len());
    match number {
        Some(number) => format!("the service says status {number}; expected 1, SERVING").into(),
        None => "the service says no status; expected SERVING".into(),
    }
}

/// What asks the health service for a service.
fn question(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if let Ok(len @ 1..=127) = u8::try_from(service.len()) {
        message.extend_from_slice(&[0x0a, len]);
        message.extend_from_slice(service.as_bytes());
    }
    let len = u32::try_from(message.len()).expect("a name is short");
    [&[0][..], &len.to_be_bytes(), &message].concat()
}

fn is_serving(answer: &[u8], mut trailers: Fields<'_>) -> bool {
    let is_well = trailers.any(|field| field.name == "grpc-status" && field.value == b"0");
    let message = answer.get(PREFIX_BYTES..).unwrap_or_default();
    is_well && answer.first() == Some(&0) && message == SERVING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_a_service_or_stands_for_all() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("a.B"), [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        assert_eq!(question(&"x".repeat(100)).len(), 5 + 2 + 100);
    }

    #[test]
    fn what_is_not_serving_is_said_in_words() {
        for (status, message, expected) in [
            (&b""[..], &[][..], "grpc-status none; expected 0"),
            (b"5", &[0, 0, 0, 0, 2, 8, 1], "grpc-status 5; expected 0"),
            (b"0", &[0, 0, 0, 0, 2, 8, 2], "the service says status 2; expected 1, SERVING"),
            (b"0", &[0, 0, 0, 0, 0], "the service says no status; expected SERVING"),
        ] {
            assert_eq!(not_serving(status, message), expected);
        }
    }

    #[test]
    fn only_one_that_says_so_is_serving() {
        let well = b"grpc-status: 0\r\n";
        for (answer, trailers, expected) in [
            (&[0, 0, 0, 0, 2, 8, 1][..], &well[..], true),
            (&[0, 0, 0, 0, 2, 8, 1], b"grpc-status: 5\r\n", false),
            (&[0, 0, 0, 0, 2, 8, 1], b"", false),
            (&[0, 0, 0, 0, 2, 8, 2], well, false),
            (&[0, 0, 0, 0, 0], well, false),
            (&[1, 0, 0, 0, 2, 8, 1], well, false),
            (&[], well, false),
        ] {
            let trailers = Fields::of_trailers(trailers);
            assert_eq!(is_serving(answer, trailers), expected, "{answer:?}");
        }
    }
}
