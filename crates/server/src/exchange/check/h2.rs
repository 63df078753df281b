//! A check of a backend by HTTP/2: one stream that asks for a path, or the health service of gRPC for a service.
//!
//! The answer of the latter is a message of gRPC, a byte and a length in front, of which one field counts: `status`, which is
//! 1 where the service is serving.

use pollux_engine::Actions;
use pollux_http::h2::{Ask, Connection, Event, Fault, Output, Role, Scratch, Settings};
use pollux_http::{Field, Fields, Limits, Method};

use crate::config::Check;

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
        let mut out = Output::new(actions.spare());
        connection.start(&mut out);
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
        let stream = connection.ask(&mut out, &ask, message.is_none(), ());
        let stream = stream.expect("the first one may be begun");
        if let Some(message) = &message {
            connection.send_data(&mut out, stream, message, true);
        }
        let len = out.len();
        actions.advance(len);
        Self { connection, is_grpc: message.is_some(), answer: Vec::new() }
    }

    /// Takes what came; says how much of it was used, and whether the check has passed, once that is known.
    ///
    /// # Errors
    /// What is wrong with the bytes: it has not passed.
    pub(super) fn read(
        &mut self,
        scratch: &mut Scratch,
        limits: &Limits,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Result<(usize, Option<bool>), Fault> {
        let now_ms = actions.now().at.as_nanos() / 1_000_000;
        let mut used = 0;
        while used < input.len() {
            let mut out = Output::new(actions.spare());
            let read = self.connection.read(&input[used..], scratch, &mut out, limits, now_ms);
            let len = out.len();
            actions.advance(len);
            let step = read?;
            used += step.used;
            let Some(event) = step.event else { break };
            if matches!(event, Event::NoRoom) {
                actions.notify_when_sent();
                break;
            }
            if let Some(verdict) = verdict(self.is_grpc, &mut self.answer, &event) {
                return Ok((input.len(), Some(verdict)));
            }
        }
        Ok((used, None))
    }
}

/// Whether the check has passed, where this tells.
fn verdict(is_grpc: bool, answer: &mut Vec<u8>, event: &Event<'_, ()>) -> Option<bool> {
    match *event {
        Event::Response { response, .. } if response.facts.is_interim() => None,
        Event::Response { response, .. } if !is_grpc => {
            Some(matches!(response.facts.status.code(), 200..=399))
        }
        Event::Response { response, ends, .. } => {
            // An answer of a head alone is one that failed, or lacks its message.
            let is_sound = response.facts.status.code() == 200 && !ends;
            (!is_sound).then_some(false)
        }
        Event::Data { data, ends, .. } => {
            answer.extend_from_slice(data);
            // It ends with fields that say how it went.
            (ends || answer.len() > ANSWER_BYTES_MAX).then_some(false)
        }
        Event::Trailers { fields, .. } => Some(is_serving(answer, fields)),
        Event::Reset { .. } | Event::Malformed { .. } => Some(false),
        Event::GoneAway { last, .. } => (last == 0).then_some(false),
        _ => None,
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
