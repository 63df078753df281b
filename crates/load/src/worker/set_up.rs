//! What a worker does before the first request: the crowd, the active connections, the start.
//!
//! Nothing that fails here ends the run: a member of the crowd that is refused is told in the
//! outcome, and an active connection is tried again when requests begin.

use std::time::Duration;

use pollux_engine::Moment;

use super::{CONNECTING_MAX, SECOND_NS, WAIT_MAX, WAIT_READY, Worker, share};
use crate::LoadError;
use crate::active::Active;
use crate::crowd::{Kind, Member};
use crate::own_use;
use crate::session::ClientSession;
use crate::shared::{Stage, monotonic_ns};
use crate::supply::Supply;

/// Members of the crowd that are being set up at the same time, their first answer included: a
/// server that is given more than its backlog holds loses a second with each.
const UNSETTLED_MAX: u32 = 256;

impl Worker {
    /// Opens the crowd; says how long it took.
    pub(super) fn set_up_crowd(&mut self) -> Result<Duration, LoadError> {
        let began_ns = monotonic_ns();
        let mut told = 0;
        for kind in Kind::ALL {
            let mut left = Self::crowd_share(kind, &self.plan, self.thread);
            while (left > 0 || self.shared().crowd.unsettled > 0) && !self.control.is_stopped() {
                while left > 0 && self.shared().crowd.unsettled < UNSETTLED_MAX {
                    self.open_member(kind);
                    left -= 1;
                }
                self.turn(WAIT_MAX)?;
                let connected = self.shared().crowd.connected();
                self.control.crowd_grew(connected - std::mem::replace(&mut told, connected));
            }
        }
        Ok(Duration::from_nanos(monotonic_ns() - began_ns))
    }

    fn open_member(&mut self, kind: Kind) {
        self.shared().crowd.unsettled += 1;
        let deadline = Moment::from_nanos(monotonic_ns()) + self.plan.connect_timeout;
        let member = ClientSession::Crowd(Member::new(kind));
        // Those that never send don't greet either.
        let session = if kind == Kind::Silent { member } else { self.encrypted(member) };
        match self.event_loop.connect(self.opener.way(), session, deadline) {
            Ok(_) => self.shared().connecting += 1,
            Err(_) => self.shared().crowd.refused(kind),
        }
    }

    /// Opens the active connections; each was tried once when this returns.
    pub(super) fn set_up_active(&mut self) -> Result<(), LoadError> {
        let seats = share(self.plan.connections.into(), self.thread, self.plan.threads) as u32;
        let mut opened = 0;
        while (opened < seats || self.shared().connecting > 0) && !self.control.is_stopped() {
            while opened < seats && self.shared().connecting < CONNECTING_MAX {
                self.open_active(Active::new(opened, self.plan.pipeline, self.plan.keeps_cookies));
                opened += 1;
            }
            self.turn(WAIT_MAX)?;
        }
        self.tell();
        Ok(())
    }

    pub(super) fn wait_for_start(&mut self) -> Result<(), LoadError> {
        while self.control.origin_ns().is_none_or(|origin_ns| monotonic_ns() < origin_ns) {
            if self.control.is_stopped() {
                return Ok(());
            }
            self.turn(WAIT_READY)?;
        }
        let origin_ns = self.control.origin_ns().unwrap_or_default();
        let measure_from_ns = self.control.measure_from_ns().unwrap_or_default();
        let after = self.plan.end.after.map_or(u64::MAX, |after| after.as_nanos() as u64);
        let first_ns = match self.plan.warm_up.as_nanos() as u64 % SECOND_NS {
            0 => SECOND_NS,
            part_ns => part_ns,
        };
        self.boundary_ns = origin_ns + first_ns;
        self.handed = (own_use::cpu_time(), self.spun_ns);
        self.course.begin(origin_ns);
        let shared = self.event_loop.shared();
        shared.stage = Stage::Running;
        if !self.plan.warm_up.is_zero() {
            shared.measure_from_ns = measure_from_ns;
        }
        shared.end_ns = measure_from_ns.saturating_add(after);
        if let Supply::Open(due) = &mut shared.supply {
            (due.origin_ns, due.end_ns) = (origin_ns, shared.end_ns);
        } else {
            while let Some(id) = self.event_loop.shared().seats.pop() {
                self.event_loop.wake(id);
            }
        }
        Ok(())
    }
}
