//! A look at a backend: whether it accepts connections, or answers a request well.
//!
//! The first loop of a proxy makes them, each on a connection of its own, as its sessions are asked
//! for errands.

use std::io;

use pollux_engine::{Actions, Moment};
use pollux_http::{ProxyHeader, RequestKind, Response};

use super::fault::Fault;
use super::shared::ProxyShared;

/// What a backend has to do to pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Check {
    /// Nothing: only requests show how it is.
    #[default]
    None,
    /// To accept a connection.
    Tcp,
    /// To answer GET of this path with a status from 200 to 399.
    Http(String),
}

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

/// When which backend is looked at next.
#[derive(Debug)]
pub(super) struct Schedule {
    due: Vec<Moment>,
}

impl Schedule {
    /// For backends of which these are looked at, all of them soon.
    pub(super) fn new(is_checked: &[bool]) -> Self {
        let first = |&is_checked| if is_checked { Moment::default() } else { Moment::NEVER };
        Self { due: is_checked.iter().map(first).collect() }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Moment {
        self.due.iter().copied().min().unwrap_or(Moment::NEVER)
    }

    /// A backend that is due; it is under way from now on.
    pub(super) fn take(&mut self, now: Moment) -> Option<usize> {
        let at = self.due.iter().position(|due| *due <= now)?;
        self.due[at] = Moment::NEVER;
        Some(at)
    }

    /// Has the backend looked at again at that moment.
    pub(super) fn again(&mut self, backend: usize, at: Moment) {
        self.due[backend] = at;
    }
}
