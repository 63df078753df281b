//! The models of the two byte streams: `pipe(2)` and a connected pair of stream sockets (`socketpair(2)`, AF_UNIX).
//!
//! A pipe has sixteen places of one page each. What matters for readiness is not how many bytes are in it but how
//! many places are taken. A write fills up the last page only if the part of it that is not a whole page fits
//! there; so a pipe can be full with far less than 65,536 bytes in it (`pipe(7)`).
//!
//! Each write to a socket becomes buffers that are charged to the sender at their memory size until the
//! receiver has taken their last byte. A sender may write while less than its send buffer is
//! charged, but is called writable only while less than a quarter of it is (`unix(7)` does not
//! say so; the figures were read off Linux 6.18 with `SIOCOUTQ`).

use std::collections::VecDeque;

use pollux_poller::Readiness;
use rustix::io::Errno;

use crate::sim::object::{Object, Side, Wake};

const PAGE_LEN_BYTES: usize = 4096;
/// The default of Linux; `F_SETPIPE_SZ` could change it.
const PAGES_MAX: usize = 16;
/// `net.core.wmem_default`, the size of a send buffer that was not set.
const SEND_BUFFER_BYTES: usize = 212_992;
/// The most payload of one buffer that lies behind its header, in one allocation.
const LINEAR_MAX_BYTES: usize = 3776;
/// The most payload of one buffer that lies in pages of their own.
const PAGED_MAX_BYTES: usize = 32_768;

/// The end that is read from.
const READER: Side = Side::A;
/// The end that is written to.
const WRITER: Side = Side::B;

/// A pipe; [`READER`] and [`WRITER`] are its sides.
pub(crate) struct Pipe {
    pages: VecDeque<Page>,
    is_open: [bool; 2],
}

struct Page {
    unread_bytes: usize,
    /// Where the next write would begin.
    end: usize,
}

impl Pipe {
    pub(crate) fn new() -> Self {
        Self { pages: VecDeque::new(), is_open: [true; 2] }
    }

    fn is_full(&self) -> bool {
        self.pages.len() >= PAGES_MAX
    }

    /// Puts the odd part of a write into the last page, if all of it fits.
    fn merge(&mut self, len_bytes: usize) -> usize {
        let odd = len_bytes % PAGE_LEN_BYTES;
        match self.pages.back_mut() {
            Some(last) if last.end + odd <= PAGE_LEN_BYTES => {
                last.end += odd;
                last.unread_bytes += odd;
                odd
            }
            _ => 0,
        }
    }
}

impl Object for Pipe {
    fn readiness(&self, side: Side) -> Readiness {
        let mut found = Readiness::NONE;
        let is_alone = !self.is_open[side.other().index()];
        if side == READER {
            if !self.pages.is_empty() {
                found |= Readiness::READABLE;
            }
            if is_alone {
                found |= Readiness::HUP;
            }
        } else {
            if !self.is_full() {
                found |= Readiness::WRITABLE;
            }
            if is_alone {
                found |= Readiness::ERROR;
            }
        }
        found
    }

    fn write(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        if side == READER {
            return Err(Errno::BADF);
        }
        if len_bytes == 0 {
            return Ok(0);
        }
        if !self.is_open[READER.index()] {
            return Err(Errno::PIPE);
        }
        let mut written = self.merge(len_bytes);
        while written < len_bytes && !self.is_full() {
            let part = (len_bytes - written).min(PAGE_LEN_BYTES);
            self.pages.push_back(Page { unread_bytes: part, end: part });
            written += part;
        }
        // Linux calls polled readers for every write, even for one that found no room.
        wakes.push(Wake::of(READER, Readiness::READABLE));
        if written == 0 { Err(Errno::AGAIN) } else { Ok(written) }
    }

    fn read(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        if side == WRITER {
            return Err(Errno::BADF);
        }
        if len_bytes == 0 {
            return Ok(0);
        }
        let was_full = self.is_full();
        let mut left = len_bytes;
        while let Some(page) = self.pages.front_mut() {
            let part = page.unread_bytes.min(left);
            page.unread_bytes -= part;
            left -= part;
            if page.unread_bytes > 0 {
                break;
            }
            self.pages.pop_front();
        }
        if was_full && !self.is_full() {
            wakes.push(Wake::of(WRITER, Readiness::WRITABLE));
        }
        match len_bytes - left {
            0 if self.is_open[WRITER.index()] => Err(Errno::AGAIN),
            taken => Ok(taken),
        }
    }

    fn release(&mut self, side: Side, wakes: &mut Vec<Wake>) {
        self.is_open[side.index()] = false;
        wakes.push(Wake::all(side.other()));
    }
}

/// Two connected sockets.
#[derive(Default)]
pub(crate) struct Pair {
    ends: [End; 2],
}

#[derive(Default)]
struct End {
    received: VecDeque<Buffer>,
    /// Memory of this end's own writes that the other end has not taken.
    charged_bytes: usize,
    error: Option<Errno>,
    has_priority: bool,
    /// No more is received: this end was shut for reading or the other for writing.
    is_read_shut: bool,
    is_write_shut: bool,
    is_closed: bool,
}

impl End {
    fn is_writable(&self) -> bool {
        // Exactly a quarter is too much: the kernel's count of charged bytes starts at one.
        self.charged_bytes * 4 < SEND_BUFFER_BYTES
    }
}

struct Buffer {
    unread_bytes: usize,
    charge_bytes: usize,
}

impl Pair {
    /// `shutdown(2)` with SHUT_WR.
    pub(crate) fn shutdown_write(&mut self, side: Side, wakes: &mut Vec<Wake>) {
        self.ends[side.index()].is_write_shut = true;
        self.ends[side.other().index()].is_read_shut = true;
        wakes.extend([Wake::all(side), Wake::all(side.other())]);
    }

    /// Leaves `ECONNRESET` pending, for the next read that finds no data.
    pub(crate) fn set_error(&mut self, side: Side, wakes: &mut Vec<Wake>) {
        self.ends[side.index()].error = Some(Errno::CONNRESET);
        wakes.push(Wake::of(side, Readiness::ERROR));
    }

    /// Puts urgent data in front of `side`, or takes it away.
    pub(crate) fn set_priority(&mut self, side: Side, is_present: bool, wakes: &mut Vec<Wake>) {
        self.ends[side.index()].has_priority = is_present;
        if is_present {
            wakes.push(Wake::of(side, data()));
        }
    }
}

/// The key under which arriving data calls: the kernel uses the same one for urgent data.
fn data() -> Readiness {
    Readiness::READABLE | Readiness::PRIORITY
}

impl Object for Pair {
    fn readiness(&self, side: Side) -> Readiness {
        let end = &self.ends[side.index()];
        let conditions = [
            (end.error.is_some(), Readiness::ERROR),
            (end.is_read_shut && end.is_write_shut, Readiness::HUP),
            (end.is_read_shut, Readiness::RDHUP | Readiness::READABLE),
            (!end.received.is_empty(), Readiness::READABLE),
            (end.has_priority, Readiness::PRIORITY),
            (end.is_writable(), Readiness::WRITABLE),
        ];
        let held = conditions.into_iter().filter(|(holds, _)| *holds);
        held.fold(Readiness::NONE, |found, (_, readiness)| found | readiness)
    }

    fn write(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        let [us, peer] = ends(&mut self.ends, side);
        if us.is_write_shut {
            return Err(Errno::PIPE);
        }
        if let Some(error) = us.error.take() {
            return Err(error);
        }
        let mut written = 0;
        while written < len_bytes && us.charged_bytes < SEND_BUFFER_BYTES {
            let part = (len_bytes - written).min(LINEAR_MAX_BYTES + PAGED_MAX_BYTES);
            let buffer = Buffer { unread_bytes: part, charge_bytes: charge_bytes(part) };
            us.charged_bytes += buffer.charge_bytes;
            peer.received.push_back(buffer);
            written += part;
            wakes.push(Wake::of(side.other(), data()));
        }
        if written == 0 && len_bytes > 0 { Err(Errno::AGAIN) } else { Ok(written) }
    }

    fn read(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        let [us, peer] = ends(&mut self.ends, side);
        let mut left = len_bytes;
        while let Some(buffer) = us.received.front_mut() {
            let part = buffer.unread_bytes.min(left);
            buffer.unread_bytes -= part;
            left -= part;
            if buffer.unread_bytes > 0 {
                break;
            }
            peer.charged_bytes -= buffer.charge_bytes;
            us.received.pop_front();
            // The sender is called for each buffer that comes back, not only for the first.
            if peer.is_writable() {
                wakes.push(Wake::of(side.other(), Readiness::WRITABLE));
            }
        }
        match len_bytes - left {
            0 if len_bytes > 0 => match us.error.take() {
                Some(error) => Err(error),
                None if us.is_read_shut => Ok(0),
                None => Err(Errno::AGAIN),
            },
            taken => Ok(taken),
        }
    }

    fn release(&mut self, side: Side, wakes: &mut Vec<Wake>) {
        let [us, peer] = ends(&mut self.ends, side);
        us.is_closed = true;
        if peer.is_closed {
            return;
        }
        (peer.is_read_shut, peer.is_write_shut) = (true, true);
        if !us.received.is_empty() {
            peer.error = Some(Errno::CONNRESET);
        }
        us.received.clear();
        peer.charged_bytes = 0;
        wakes.push(Wake::all(side.other()));
    }

    fn as_socket(&mut self) -> Option<&mut Pair> {
        Some(self)
    }
}

/// This end and the other one.
fn ends(ends: &mut [End; 2], side: Side) -> [&mut End; 2] {
    let [a, b] = ends;
    match side {
        Side::A => [a, b],
        Side::B => [b, a],
    }
}

/// The memory that a buffer with `len_bytes` of payload is charged at: its header, the
/// smallest power of two that holds the linear part with 320 bytes of bookkeeping, and pages.
fn charge_bytes(len_bytes: usize) -> usize {
    const HEADER_BYTES: usize = 256;
    const BOOKKEEPING_BYTES: usize = 320;
    const ALLOCATION_MIN_BYTES: usize = 512;
    let overhang = len_bytes.saturating_sub(LINEAR_MAX_BYTES);
    let paged = overhang.next_multiple_of(PAGE_LEN_BYTES).min(len_bytes);
    let linear = len_bytes - paged + BOOKKEEPING_BYTES;
    let allocation = linear.next_power_of_two().max(ALLOCATION_MIN_BYTES);
    HEADER_BYTES + allocation + paged.next_multiple_of(PAGE_LEN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_not_merged_so_few_bytes_can_fill_a_pipe() {
        let mut pipe = Pipe::new();
        let mut wakes = Vec::new();
        for _ in 0..PAGES_MAX {
            assert_eq!(pipe.write(WRITER, 2100, &mut wakes), Ok(2100));
        }
        assert_eq!(pipe.write(WRITER, 2100, &mut wakes), Err(Errno::AGAIN));
        assert_eq!(pipe.readiness(WRITER), Readiness::NONE);
        assert_eq!(pipe.write(WRITER, 10, &mut wakes), Ok(10), "it fits into the last page");
    }

    #[test]
    fn a_writer_is_called_when_the_first_page_of_a_full_pipe_is_free() {
        let mut pipe = Pipe::new();
        let mut wakes = Vec::new();
        assert_eq!(pipe.write(WRITER, 1 << 20, &mut wakes), Ok(65_536));
        wakes.clear();
        assert_eq!(pipe.read(READER, PAGE_LEN_BYTES - 1, &mut wakes), Ok(PAGE_LEN_BYTES - 1));
        assert_eq!((pipe.readiness(WRITER), wakes.len()), (Readiness::NONE, 0));
        assert_eq!(pipe.read(READER, 1, &mut wakes), Ok(1));
        assert_eq!(wakes, [Wake::of(WRITER, Readiness::WRITABLE)]);
        assert_eq!(pipe.readiness(WRITER), Readiness::WRITABLE);
    }

    /// Pairs of payload and `SIOCOUTQ` after one write of it, read off Linux 6.18.
    #[test]
    fn buffers_are_charged_as_the_kernel_charges_them() {
        let measured = [(1, 768), (192, 768), (193, 1280), (704, 1280), (705, 2304), (1729, 4352)];
        let paged = [(3776, 4352), (3777, 4864), (4289, 5376), (20_000, 20_736), (36_544, 37_120)];
        for (len, charge) in measured.into_iter().chain(paged) {
            assert_eq!(charge_bytes(len), charge, "payload of {len} bytes");
        }
    }

    #[test]
    fn a_full_socket_is_writable_again_only_when_three_quarters_are_free() {
        let mut pair = Pair::default();
        let mut wakes = Vec::new();
        assert_eq!(pair.write(Side::A, 1 << 20, &mut wakes), Ok(219_264));
        assert_eq!(pair.write(Side::A, 1, &mut wakes), Err(Errno::AGAIN));
        wakes.clear();
        assert_eq!(pair.read(Side::B, 36_544 * 4, &mut wakes), Ok(36_544 * 4));
        assert_eq!((pair.readiness(Side::A), wakes.len()), (Readiness::NONE, 0));
        assert_eq!(pair.read(Side::B, 36_544, &mut wakes), Ok(36_544));
        assert_eq!(wakes, [Wake::of(Side::A, Readiness::WRITABLE)]);
    }

    #[test]
    fn closing_over_unread_data_resets_the_peer_once() {
        let mut pair = Pair::default();
        let mut wakes = Vec::new();
        assert_eq!(pair.write(Side::A, 3, &mut wakes), Ok(3));
        pair.release(Side::B, &mut wakes);
        assert!(pair.readiness(Side::A).contains(Readiness::ERROR | Readiness::HUP));
        assert_eq!(pair.read(Side::A, 8, &mut wakes), Err(Errno::CONNRESET));
        assert_eq!(pair.read(Side::A, 8, &mut wakes), Ok(0));
        assert!(!pair.readiness(Side::A).contains(Readiness::ERROR));
    }
}
