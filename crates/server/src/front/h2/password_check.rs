//! A stream whose password is looked at by another thread ([`Part::Checking`]). Of its body no more comes meanwhile than its
//! window lets through; `routed.rs` has the request once that is known, and what came of its body behind it.

use std::sync::Arc;

use pollux_engine::Moment;
use pollux_http::h2::NeverIndexed;
use pollux_http::{Fields, Framing, Request};

use crate::front::h2::{Call, Http2Session, Part, Task};
use crate::front::sites::Occasion;
use crate::front::state::LoopState;
use crate::passwords::Ticket;

/// A request that waits for that.
#[derive(Debug)]
pub(super) struct Checking {
    ticket: Arc<Ticket>,
    framing: Framing,
    expects_continue: bool,
    never_indexed: NeverIndexed,
    /// Its head was all of it.
    is_bodiless: bool,
    /// What came of its body.
    body: Vec<u8>,
    /// The lines of fields behind that.
    trailers: Option<(Vec<u8>, NeverIndexed)>,
    /// All of it has come.
    ends: bool,
}

impl Checking {
    /// Whether more of its request is to come.
    pub(super) fn is_reading(&self) -> bool {
        !self.ends
    }

    /// By when it has waited too long.
    pub(super) fn deadline(&self, state: &LoopState) -> Moment {
        let proxy = state.proxy.as_ref();
        self.ticket.end.min(proxy.map_or(Moment::NEVER, |proxy| proxy.drain_end))
    }
}

impl Http2Session {
    /// The stream waits for the check of its password.
    pub(super) fn wait_for_check(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        ends: bool,
        ticket: Arc<Ticket>,
    ) {
        let checking = Checking {
            ticket,
            framing: request.framing,
            expects_continue: request.expects_continue,
            never_indexed,
            is_bodiless: ends,
            body: Vec::new(),
            trailers: None,
            ends,
        };
        self.begin_sending(call);
        self.look_at = self.look_at.min(checking.deadline(call.state));
        self.readers += usize::from(checking.is_reading());
        self.checks += 1;
        let kept = call.state.keep();
        let Some(task) = self.connection.data_mut(stream) else { return };
        (task.head, task.part) = (head.into(), Part::Checking(Box::new(checking)));
        task.kept = kept;
    }

    /// Keeps what came of the body of such a stream.
    pub(super) fn keep_body(&mut self, stream: u32, data: &[u8], ends: bool) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        let Part::Checking(checking) = &mut task.part else { return };
        checking.body.extend_from_slice(data);
        task.kept_bytes += data.len();
        self.kept_bytes += data.len();
        if ends && !std::mem::replace(&mut checking.ends, true) {
            self.readers -= 1;
        }
    }

    /// Keeps the fields behind the body of such a stream; false of another one.
    pub(super) fn keep_trailers(
        &mut self,
        stream: u32,
        trailers: Fields<'_>,
        never_indexed: NeverIndexed,
    ) -> bool {
        let task = self.connection.data_mut(stream);
        let Some(Task { part: Part::Checking(checking), .. }) = task else { return false };
        let mut lines = Vec::new();
        for field in trailers {
            for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        checking.trailers = Some((lines, never_indexed));
        true
    }

    /// The connection was woken: streams whose passwords were looked at continue.
    pub(super) fn checks_moved(&mut self, call: &mut Call<'_, '_>) {
        if self.checks == 0 {
            return;
        }
        let is_known = |task: &Task| match &task.part {
            Part::Checking(checking) => checking.ticket.verdict().is_some(),
            _ => false,
        };
        let known: Vec<u32> = self
            .connection
            .streams()
            .filter(|(_, task)| is_known(task))
            .map(|(stream, _)| stream)
            .collect();
        for stream in known {
            self.end_check(call, stream);
        }
    }

    /// There is a verdict, or it took too long.
    pub(super) fn end_check(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        let task = task.take();
        self.left(&task);
        let epoch = task.kept.restore(&call.state.current_id);
        let Task { head, part: Part::Checking(checking), kept: _kept, .. } = task else { return };
        let Checking { ticket, framing, expects_continue, never_indexed, body, .. } = *checking;
        let request = Request::of_stream(&head, framing, expects_continue);
        let Some(request) = request else { return };
        let occasion = Occasion::Checked(ticket.verdict());
        let request = (&request, never_indexed);
        let is_bodiless = checking.is_bodiless;
        call.under(epoch, |call| self.route(call, stream, request, &head, (is_bodiless, occasion)));
        if checking.is_bodiless {
            return;
        }
        let trailers = checking.trailers;
        let ends = checking.ends;
        if !body.is_empty() {
            self.on_data(call, stream, &body, ends && trailers.is_none());
        }
        if let Some((lines, never_indexed)) = &trailers {
            let lines = [&lines[..], b"\r\n"].concat();
            self.give_trailers(call, stream, Fields::of_trailers(&lines), *never_indexed);
        }
        if ends && (body.is_empty() || trailers.is_some()) {
            self.on_data(call, stream, &[], true);
        }
    }
}
