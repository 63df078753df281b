//! A check of a backend: whether it accepts connections, or answers a request well.
//!
//! The first loop of a proxy makes them, each on a connection of its own, as its sessions are asked
//! for commands.

mod h2;

use std::io;

use pollux_engine::Actions;
use pollux_http::{ProxyHeader, RequestKind, Response};

use crate::config::Check;
use crate::exchange::check::h2::StreamCheck;
use crate::exchange::upstream::h2::{NOT_AGREED, refuses_http2};
use crate::exchange::upstreams::Upstreams;
use crate::fault::Fault;
use crate::ids::BackendId;

/// One check under way.
#[derive(Debug)]
pub(crate) struct CheckSession {
    backend: BackendId,
    /// Whether it has passed; none when it says nothing of the backend.
    verdict: Option<bool>,
    /// Both sides agreed on HTTP/2 in TLS.
    has_agreed: bool,
    /// What is asked, by HTTP/2.
    stream: Option<Box<StreamCheck>>,
}

impl CheckSession {
    pub(crate) fn new(backend: BackendId) -> Self {
        Self { backend, verdict: Some(false), has_agreed: false, stream: None }
    }

    /// Both sides agreed on HTTP/2 in TLS.
    pub(crate) fn agreed(&mut self) {
        self.has_agreed = true;
    }

    /// Says that it is the proxy's own connection, where the backend wants that.
    pub(crate) fn announce(&self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let is_http = matches!(upstreams.group_of(self.backend).check, Check::Http(_));
        if is_http || upstreams.group_of(self.backend).tls.is_some() {
            upstreams.announce(
                upstreams.backends[self.backend.place()].group,
                ProxyHeader::Own,
                actions,
            );
        }
    }

    pub(crate) fn tls_failed(&self, upstreams: &Upstreams, error: Option<&pollux_tls::Error>) {
        match refuses_http2(error) {
            true => upstreams.report_http2(self.backend, NOT_AGREED),
            false => upstreams.report_tls(self.backend, error),
        }
    }

    pub(crate) fn connected(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let group = upstreams.group_of(self.backend);
        let (is_http2, is_encrypted) = (group.protocol.is_http2(), group.tls.is_some());
        if is_http2 && is_encrypted && !self.has_agreed {
            upstreams.report_http2(self.backend, NOT_AGREED);
            return actions.abort();
        }
        let host =
            group.check_host.as_ref().unwrap_or(&upstreams.backends[self.backend.place()].host);
        let path = match &group.check {
            Check::Http(path) if !is_http2 => path,
            check @ (Check::Http(_) | Check::Grpc(_)) => {
                let stream = StreamCheck::begin(check, host, is_encrypted, actions);
                self.stream = Some(Box::new(stream));
                return;
            }
            Check::None | Check::Tcp => {
                self.verdict = Some(true);
                return actions.abort();
            }
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pollux-check\r\nConnection: \
             close\r\n\r\n"
        );
        actions.send(request.as_bytes());
    }

    pub(crate) fn on_bytes(
        &mut self,
        upstreams: &mut Upstreams,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if let Some(stream) = &mut self.stream {
            let Upstreams { scratch, answer_limits, .. } = upstreams;
            let (used, verdict) = match stream.read(scratch, answer_limits, actions, input) {
                Ok(read) => read,
                Err(fault) => {
                    upstreams.report_http2(self.backend, &format!("a check: {fault}"));
                    (input.len(), Some(false))
                }
            };
            if verdict.is_some() {
                self.verdict = verdict;
                actions.abort();
            }
            return used;
        }
        let mut used = 0;
        // What follows an interim answer may be here already, with the end of the connection behind it.
        loop {
            let rest = &input[used..];
            match Response::parse(rest, &upstreams.answer_limits, RequestKind::Other) {
                Ok(None) => return used,
                Ok(Some(response)) if response.facts.is_interim() => {
                    used += response.facts.head_len;
                }
                Ok(Some(response)) => {
                    self.verdict = Some(matches!(response.facts.status.code(), 200..=399));
                    break;
                }
                Err(_) => break,
            }
        }
        actions.abort();
        input.len()
    }

    pub(crate) fn connect_failed(&mut self, error: &io::Error) {
        if Fault::of_connect(error) == Fault::UpstreamsFull {
            self.verdict = None;
        }
    }

    /// There was no room for its connection.
    pub(crate) fn was_refused(&self) -> bool {
        self.verdict.is_none()
    }

    /// No more comes, or not in time.
    pub(crate) fn give_up(&self, actions: &mut Actions<'_>) {
        actions.abort();
    }

    /// The proxy ends, before the backend could show how it is.
    pub(crate) fn on_shutdown(&mut self, actions: &mut Actions<'_>) {
        self.verdict = None;
        actions.abort();
    }

    pub(crate) fn closed(self, upstreams: &mut Upstreams) {
        upstreams.checked(self.backend, self.verdict);
    }
}
