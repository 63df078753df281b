//! A check of a backend: whether it accepts connections, or answers a request well.
//!
//! The first loop of a proxy makes them, each on a connection of its own, as its sessions are asked
//! for commands.

use std::io;

use pollux_engine::Actions;
use pollux_http::{ProxyHeader, RequestKind, Response};

use crate::config::Check;
use crate::exchange::shared::Upstreams;
use crate::fault::Fault;

/// One check under way.
#[derive(Debug)]
pub(crate) struct CheckSession {
    backend: usize,
    /// Whether it has passed; none when it says nothing of the backend.
    verdict: Option<bool>,
}

impl CheckSession {
    pub(crate) fn new(backend: usize) -> Self {
        Self { backend, verdict: Some(false) }
    }

    /// Says that it is the proxy's own connection, where the backend wants that.
    pub(crate) fn announce(&self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let is_http = matches!(shared.group_of(self.backend).check, Check::Http(_));
        if is_http || shared.group_of(self.backend).tls.is_some() {
            shared.announce(shared.backends[self.backend].group, ProxyHeader::Own, actions);
        }
    }

    pub(crate) fn tls_failed(&self, shared: &Upstreams, error: Option<&pollux_tls::Error>) {
        shared.report_tls(self.backend, error);
    }

    pub(crate) fn connected(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let group = shared.group_of(self.backend);
        let Check::Http(path) = &group.check else {
            self.verdict = Some(true);
            return actions.abort();
        };
        let host = group.check_host.as_ref().unwrap_or(&shared.backends[self.backend].host);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pollux-check\r\nConnection: \
             close\r\n\r\n"
        );
        actions.send(request.as_bytes());
    }

    pub(crate) fn on_bytes(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        // What follows an interim answer may be here already, with the end of the connection behind it.
        loop {
            let rest = &input[used..];
            match Response::parse(rest, &shared.answer_limits, RequestKind::Other) {
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
    pub(crate) fn on_drain(&mut self, actions: &mut Actions<'_>) {
        self.verdict = None;
        actions.abort();
    }

    pub(crate) fn closed(self, shared: &mut Upstreams) {
        shared.checked(self.backend, self.verdict);
    }
}
