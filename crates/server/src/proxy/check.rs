//! A look at a backend: whether it accepts connections, or answers a request well.
//!
//! The first loop of a proxy makes them, each on a connection of its own, as its sessions are asked
//! for errands.

use std::io;

use pollux_engine::Actions;
use pollux_http::{ProxyHeader, RequestKind, Response};

use super::config::Check;
use super::fault::Fault;
use super::shared::ProxyShared;

/// One check under way.
#[derive(Debug)]
pub(super) struct CheckSession {
    backend: usize,
    /// Whether it has passed; none when it says nothing of the backend.
    verdict: Option<bool>,
}

impl CheckSession {
    pub(super) fn new(backend: usize) -> Self {
        Self { backend, verdict: Some(false) }
    }

    /// Says that it is the proxy's own connection, where the backend wants that.
    pub(super) fn announce(&self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let is_http = matches!(shared.group_of(self.backend).check, Check::Http(_));
        if is_http || shared.group_of(self.backend).tls.is_some() {
            shared.announce(shared.backends[self.backend].group, ProxyHeader::Own, actions);
        }
    }

    pub(super) fn tls_failed(&self, shared: &ProxyShared, error: Option<&pollux_tls::Error>) {
        shared.report_tls(self.backend, error);
    }

    pub(super) fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let Check::Http(path) = &shared.group_of(self.backend).check else {
            self.verdict = Some(true);
            return actions.abort();
        };
        let host = &shared.backends[self.backend].host;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pollux-check\r\nConnection: \
             close\r\n\r\n"
        );
        actions.send(request.as_bytes());
    }

    pub(super) fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match Response::parse(input, &shared.answer_limits, RequestKind::Other) {
            Ok(None) => return 0,
            Ok(Some(response)) => {
                if response.facts.is_interim() {
                    return response.facts.head_len;
                }
                self.verdict = Some(matches!(response.facts.status.code(), 200..=399));
            }
            Err(_) => {}
        }
        actions.abort();
        input.len()
    }

    pub(super) fn connect_failed(&mut self, error: &io::Error) {
        if Fault::of_connect(error) == Fault::UpstreamsFull {
            self.verdict = None;
        }
    }

    /// There was no room for its connection.
    pub(super) fn was_refused(&self) -> bool {
        self.verdict.is_none()
    }

    /// No more comes, or not in time.
    pub(super) fn give_up(&self, actions: &mut Actions<'_>) {
        actions.abort();
    }

    /// The proxy ends, before the backend could show how it is.
    pub(super) fn on_drain(&mut self, actions: &mut Actions<'_>) {
        self.verdict = None;
        actions.abort();
    }

    pub(super) fn closed(self, shared: &mut ProxyShared) {
        shared.checked(self.backend, self.verdict);
    }
}
