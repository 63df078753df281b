//! A request of HTTP/1 whose password is looked at by another thread ([`Phase::Checking`]). What its client sends behind the
//! head waits unread until that is known; `routed.rs` has it then.

use std::sync::Arc;

use pollux_engine::{Actions, Moment, Session};
use pollux_http::{Parsed, Request};

use crate::front::h1::{HttpSession, Phase};
use crate::front::kept::Kept;
use crate::front::sites::Occasion;
use crate::front::state::LoopState;
use crate::passwords::Ticket;

/// A request that waits for that.
#[derive(Debug)]
pub(super) struct Checking {
    pub(super) head: Box<[u8]>,
    pub(super) ticket: Arc<Ticket>,
    pub(super) is_body_still_to_come: bool,
    /// The client sends nothing more.
    pub(super) has_ended: bool,
    pub(super) kept: Kept,
}

impl Checking {
    /// Until when it waits, where the loop drains by then.
    pub(super) fn end(&self, state: &LoopState) -> Moment {
        let proxy = state.proxy.as_ref();
        self.ticket.end.min(proxy.map_or(Moment::NEVER, |proxy| proxy.drain_end))
    }
}

impl HttpSession {
    pub(super) fn wait_for_check(
        &mut self,
        state: &LoopState,
        actions: &mut Actions<'_>,
        checking: Checking,
    ) {
        actions.set_deadline(checking.end(state));
        actions.pause_input();
        self.phase = Phase::Checking(Box::new(checking));
    }

    /// The session was woken, or has waited too long: continues with the request once there is a verdict.
    pub(super) fn check_moved(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        is_too_late: bool,
    ) {
        let Phase::Checking(checking) = &self.phase else { return };
        let verdict = checking.ticket.verdict();
        if verdict.is_none() && !is_too_late {
            return;
        }
        let Phase::Checking(checking) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            unreachable!("it was so before");
        };
        let epoch = checking.kept.restore(&state.current_id);
        let Checking { head, is_body_still_to_come, has_ended, .. } = *checking;
        // What came behind the head is looked at once this has its way.
        actions.resume_input();
        state.under(epoch, |state| {
            let Parsed::Complete(request, _) = Request::parse(&head, &state.head_limits) else {
                unreachable!("the same bytes were a head before");
            };
            let come = (Occasion::Checked(verdict), Some(is_body_still_to_come));
            self.route(state, actions, &request, &head, come);
        });
        if let Phase::Later(at) = self.phase {
            self.request_continues(state, actions, at, &[]);
        }
        if has_ended && matches!(self.phase, Phase::Later(_) | Phase::Body(_)) {
            return self.on_end(state, actions);
        }
        // Whether there is input is not known here, so the careful end it is.
        self.settle(state, actions, false);
    }
}
