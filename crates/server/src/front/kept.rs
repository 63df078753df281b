//! What a request keeps that is answered, or booked, later than it came.

use crate::epochs::EpochHold;
use crate::ids::EpochId;
use crate::route::request_id::CurrentId;

/// The settings by which that is done, and its id; nothing of a server whose settings no reload replaces so.
#[derive(Default, Debug)]
pub(super) struct Kept {
    hold: Option<EpochHold>,
    id: Box<str>,
}

impl Kept {
    /// What the request keeps that has this id.
    pub(super) fn new(hold: EpochHold, current: &CurrentId) -> Self {
        Self { hold: Some(hold), id: current.with(|id| id.into()) }
    }

    /// Its request is looked at again: its id is the current one, and it goes by the settings of this epoch.
    pub(super) fn restore(&self, current: &CurrentId) -> Option<EpochId> {
        let hold = self.hold.as_ref()?;
        current.set(&self.id);
        Some(hold.epoch())
    }
}
