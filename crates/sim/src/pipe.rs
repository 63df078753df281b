//! The model of `pipe(2)`: sixteen places of one page each.
//!
//! What matters for readiness is not how many bytes are in a pipe but how many places are
//! taken. A write fills up the last page only if the part of it that is not a whole page fits
//! there; so a pipe can be full with far less than 65,536 bytes in it (`pipe(7)`).

use std::collections::VecDeque;

use pollux_poller::Readiness;
use rustix::io::Errno;

use crate::object::{Object, Side, Wake};

const PAGE_LEN_BYTES: usize = 4096;
/// The default of Linux; `F_SETPIPE_SZ` could change it.
const PAGES_MAX: usize = 16;

/// The end that is read from.
pub(crate) const READER: Side = Side::A;
/// The end that is written to.
pub(crate) const WRITER: Side = Side::B;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_not_merged_so_few_bytes_can_fill_a_pipe() {
        let (mut pipe, mut wakes) = (Pipe::new(), Vec::new());
        for _ in 0..PAGES_MAX {
            assert_eq!(pipe.write(WRITER, 2100, &mut wakes), Ok(2100));
        }
        assert_eq!(pipe.write(WRITER, 2100, &mut wakes), Err(Errno::AGAIN));
        assert_eq!(pipe.readiness(WRITER), Readiness::NONE);
        assert_eq!(pipe.write(WRITER, 10, &mut wakes), Ok(10), "it fits into the last page");
    }

    #[test]
    fn a_writer_is_called_when_the_first_page_of_a_full_pipe_is_free() {
        let (mut pipe, mut wakes) = (Pipe::new(), Vec::new());
        assert_eq!(pipe.write(WRITER, 1 << 20, &mut wakes), Ok(65_536));
        wakes.clear();
        assert_eq!(pipe.read(READER, PAGE_LEN_BYTES - 1, &mut wakes), Ok(PAGE_LEN_BYTES - 1));
        assert_eq!((pipe.readiness(WRITER), wakes.len()), (Readiness::NONE, 0));
        assert_eq!(pipe.read(READER, 1, &mut wakes), Ok(1));
        assert_eq!(wakes, [Wake::of(WRITER, Readiness::WRITABLE)]);
        assert_eq!(pipe.readiness(WRITER), Readiness::WRITABLE);
    }
}
