//! A check of a backend: whether it accepts connections, or answers a request well.
//!
//! The first loop of a proxy makes them, each on a connection of its own, as its sessions are asked
//! for commands.

mod h2;

use std::io;

use pollux_engine::Actions;
use pollux_http::h2::ErrorCode;
use pollux_http::{ProxyHeader, RequestKind, Response};

use crate::config::Check;
use crate::exchange::health_check::h2::{StreamCheck, Verdict};
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::upstream::h2::{NOT_AGREED, refuses_http2};
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
    pub(crate) fn announce(&self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let is_http = matches!(proxy.group_of(self.backend).check, Check::Http(_));
        if is_http || proxy.group_of(self.backend).tls.is_some() {
            proxy.announce(proxy.backends[self.backend.place()].group, ProxyHeader::Own, actions);
        }
    }

    pub(crate) fn tls_failed(&self, proxy: &ProxyLoop, error: Option<&pollux_tls::Error>) {
        if refuses_http2(error) {
            proxy.report_http2(self.backend, NOT_AGREED);
        } else {
            proxy.report_tls(self.backend, error);
        }
    }

    pub(crate) fn connected(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let group = proxy.group_of(self.backend);
        let is_http2 = group.protocol.is_http2();
        let is_encrypted = group.tls.is_some();
        if is_http2 && is_encrypted && !self.has_agreed {
            proxy.report_http2(self.backend, NOT_AGREED);
            return actions.abort();
        }
        let host = group.check_host.as_ref().unwrap_or(&proxy.backends[self.backend.place()].host);
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
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if let Some(stream) = &mut self.stream {
            let ProxyLoop { scratch, answer_limits, .. } = proxy;
            let (used, verdict) = stream.read(scratch, answer_limits, actions, input);
            match verdict {
                None => {}
                Some(Verdict::Passed) => {
                    self.verdict = Some(true);
                    end(proxy, actions, ErrorCode::NO_ERROR);
                }
                Some(Verdict::Failed(why, code)) => {
                    proxy.report_http2(self.backend, &format!("a check: {why}"));
                    end(proxy, actions, code);
                }
            }
            return used;
        }
        let mut used = 0;
        // What follows an interim answer may be here already, with the end of the connection behind it.
        loop {
            let rest = &input[used..];
            match Response::parse(rest, &proxy.answer_limits, RequestKind::Other) {
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

    /// No more comes.
    pub(crate) fn on_end(&self, proxy: &ProxyLoop, actions: &mut Actions<'_>) {
        if self.stream.is_some() {
            proxy.report_http2(self.backend, "a check: the connection ended before its answer");
        }
        actions.abort();
    }

    /// Nothing came in time.
    pub(crate) fn on_deadline(&mut self, proxy: &ProxyLoop, actions: &mut Actions<'_>) {
        let Some(stream) = &mut self.stream else { return actions.abort() };
        proxy.report_http2(self.backend, "a check: no answer in time");
        stream.say_goodbye(actions);
        end(proxy, actions, ErrorCode::NO_ERROR);
    }

    /// The proxy ends, before the backend could show how it is.
    pub(crate) fn on_shutdown(&mut self, actions: &mut Actions<'_>) {
        self.verdict = None;
        actions.abort();
    }

    pub(crate) fn closed(self, proxy: &mut ProxyLoop) {
        proxy.checked(self.backend, self.verdict);
    }
}

/// Ends a connection of HTTP/2, whose backend was sent GOAWAY with this code.
fn end(proxy: &ProxyLoop, actions: &mut Actions<'_>, code: ErrorCode) {
    proxy.proxied.streams().goaways_sent[code.index()].add(1);
    actions.close();
}
