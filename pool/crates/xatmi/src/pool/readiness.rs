//! What the service manager that started this pool is notified of: ready when all workers are up or have failed, how many
//! are up, life where there is a watchdog.

use std::time::Instant;

use pollux_host::ServiceState;

use super::Pool;
use crate::supervisor::State;

/// What was reported.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    is_reported: bool,
    said: String,
    next_life: Option<Instant>,
}

impl Readiness {
    /// Whether the start is over, and was reported so.
    pub(super) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// When life is to be reported; never without a watchdog.
    pub(super) fn next_life(&self) -> Option<Instant> {
        self.next_life
    }
}

impl Pool {
    /// Reports that the start is over, once, and how many workers are up, whenever that changed.
    pub(super) fn report_readiness(&mut self, now: Instant) {
        if !self.service_manager.is_there() {
            return;
        }
        let members = self.members(now);
        let expected = members.iter().filter(|member| member.state != State::Down).count();
        let up = members.iter().filter(|member| member.state == State::Up).count();
        let said = format!("{up} of {expected} workers up");
        if said != self.readiness.said {
            self.service_manager.say(&said);
            self.readiness.said = said;
        }
        if !self.readiness.is_reported && self.supervisor.is_settled() {
            self.readiness.is_reported = true;
            self.service_manager.notify(ServiceState::Ready);
        }
    }

    /// Reports life, where it is asked for and due.
    pub(super) fn report_life_when_due(&mut self, now: Instant) {
        let Some(every) = self.service_manager.alive_every() else { return };
        if self.readiness.next_life.is_none_or(|at| now >= at) {
            self.service_manager.notify(ServiceState::Alive);
            self.readiness.next_life = Some(now + every);
        }
    }
}
