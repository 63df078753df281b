//! Flow windows (RFC 9113 6.9): what may be sent, and what was taken and has to be given back.

use crate::h2::error::Fault;

/// With what every window begins.
pub(crate) const WINDOW_INITIAL: i32 = 65_535;

/// Largest window.
pub(crate) const WINDOW_MAX: i32 = i32::MAX;

/// What this end may send: below zero after the peer has lowered its SETTINGS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    pub(crate) fn new(size: i32) -> Self {
        Self(size)
    }

    /// Bytes that may be sent now.
    #[inline]
    pub(crate) fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// So many bytes were sent.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        assert!(bytes <= self.room(), "more than the window");
        self.0 -= i32::try_from(bytes).expect("within the window");
    }

    /// The peer has widened it.
    #[inline]
    pub(crate) fn widen(&mut self, by: u32) -> Result<(), Fault> {
        self.change(i64::from(by))
    }

    /// A new initial size changes it by the difference.
    pub(crate) fn change(&mut self, by: i64) -> Result<(), Fault> {
        match i32::try_from(i64::from(self.0) + by) {
            Ok(size) => self.0 = size,
            Err(_) => return Err(Fault::window("a window grows beyond 2^31 - 1")),
        }
        Ok(())
    }
}

/// What the peer may send to this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    /// What it may send now.
    left: i32,
    /// What was taken, and not given back yet.
    taken: u32,
    size: u32,
}

impl ReceiveWindow {
    /// One of this size, of which the peer knows.
    pub(crate) fn new(size: u32) -> Self {
        let size = size.min(WINDOW_MAX.unsigned_abs());
        Self { left: i32::try_from(size).expect("bounded"), taken: 0, size }
    }

    /// One that becomes of this size when the peer gets an update, which is returned.
    pub(crate) fn widened(size: u32) -> (Self, u32) {
        let size = size.clamp(WINDOW_INITIAL.unsigned_abs(), WINDOW_MAX.unsigned_abs());
        (Self::new(size), size - WINDOW_INITIAL.unsigned_abs())
    }

    /// One of this size, of which the peer takes `excess` more until it knows the size.
    pub(crate) fn widened_until_known(size: u32, excess: u32) -> Self {
        let mut window = Self::new(size);
        window.left = window.left.saturating_add_unsigned(excess);
        window
    }

    /// The peer knows of a smaller size: what it may send falls, also below zero.
    pub(crate) fn narrow(&mut self, by: u32) {
        self.left = self.left.saturating_sub_unsigned(by);
    }

    /// So many bytes have arrived.
    #[inline]
    pub(crate) fn arrive(&mut self, bytes: usize) -> Result<(), Fault> {
        match i32::try_from(bytes) {
            // Nothing may always be sent (RFC 9113 6.9.1).
            Ok(0) => {}
            Ok(bytes) if bytes <= self.left => self.left -= bytes,
            _ => return Err(Fault::window("more was sent than the window allows")),
        }
        Ok(())
    }

    /// So many of them are done with. The update that is due: when half of the window was taken.
    #[inline]
    pub(crate) fn release(&mut self, bytes: usize) -> Option<u32> {
        self.taken += u32::try_from(bytes).expect("within the window");
        if self.taken == 0 || self.taken < self.size / 2 {
            return None;
        }
        let update = std::mem::take(&mut self.taken);
        self.left += i32::try_from(update).expect("within the window");
        Some(update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_be_below_zero_and_not_beyond_its_largest() {
        let mut window = SendWindow::new(WINDOW_INITIAL);
        window.take(60_000);
        assert!(window.change(-65_535).is_ok());
        assert_eq!((window.room(), window.0), (0, -60_000));
        assert!(window.widen(60_001).is_ok());
        assert_eq!(window.room(), 1);
        assert!(window.widen(WINDOW_MAX.unsigned_abs()).is_err());
    }

    #[test]
    fn what_is_taken_is_given_back_by_halves_and_nothing_is_lost() {
        let mut window = ReceiveWindow::new(1000);
        let mut granted = 1000;
        let mut sent = 0;
        for bytes in [1, 0, 499, 3, 400, 97, 600, 500, 1, 2, 1].repeat(50) {
            if window.arrive(bytes).is_err() {
                assert!(sent + bytes > granted, "the peer may send this");
                continue;
            }
            sent += bytes;
            if let Some(update) = window.release(bytes) {
                assert!(update >= 500);
                granted += update as usize;
            }
            assert!(sent <= granted && granted - sent > 500);
        }
    }
}
