//! Connections that rest: what of one has to stay while it has no stream, and where a loop keeps that of all of them.
//!
//! A connection under way has some kilobytes, in pieces that lie between those of others. When it rests all of them are freed: what
//! stays is a small value, for its user to keep beside those of the other connections, and a few bytes in cells that
//! lie one behind the other. Were it left in pieces of the heap, each would hold the page that it lies in, and the process would
//! stay as large as it was at its peak.

use std::collections::VecDeque;

use crate::h2::abuse::Abuse;
use crate::h2::connection::{BlockBytes, Connection, Phase, RESETS_KEPT_MIN};
use crate::h2::hpack::decode::Decoder;
use crate::h2::hpack::encode::Encoder;
use crate::h2::hpack::tables::Table;
use crate::h2::priority::Priority;
use crate::h2::schedule::SendOrder;
use crate::h2::settings::{PeerSettings, Role, Settings};
use crate::h2::streams::Streams;
use crate::h2::window::{ReceiveWindow, SendWindow};

/// A connection without streams, which takes none of its memory until [`RestingConnection::wake`]. Its bytes have to be given
/// back by that also where it has ended.
#[derive(Debug)]
#[must_use]
pub struct RestingConnection {
    role: Role,
    settings: Settings,
    phase: Phase,
    peer: PeerSettings,
    is_acknowledged: bool,
    begun_ms: u64,
    pings: u32,
    /// The largest size of the table of the peer's blocks.
    table_bytes_max: usize,
    /// The same of the own blocks, and what the next one has to say of it.
    own_table: (usize, Option<usize>),
    last: u32,
    left_out: (u32, u32),
    requests: u32,
    refused: u32,
    last_accepted: u32,
    peer_last: Option<u32>,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    reset_forgotten: u32,
    abuse: Abuse,
    block_bytes: BlockBytes,
    kept: Chain,
}

/// What connections that rest keep of their own: what their peers may still refer to.
#[derive(Default, Debug)]
pub struct RestingBytes {
    cells: Vec<Cell>,
    free: Vec<u32>,
}

/// Bytes of a cell: a table with the name of a host, and that of a program, takes one or two.
const CELL_BYTES: usize = 60;

#[derive(Debug)]
struct Cell {
    bytes: [u8; CELL_BYTES],
    next: u32,
}

/// Behind the last cell.
const NONE: u32 = u32::MAX;

/// The bytes of one owner.
#[derive(Debug)]
struct Chain {
    first: u32,
    len: u32,
}

impl RestingBytes {
    fn keep(&mut self, bytes: &[u8]) -> Chain {
        let mut first = NONE;
        for piece in bytes.chunks(CELL_BYTES).rev() {
            let mut cell = Cell { bytes: [0; CELL_BYTES], next: first };
            cell.bytes[..piece.len()].copy_from_slice(piece);
            first = match self.free.pop() {
                Some(place) => {
                    self.cells[place as usize] = cell;
                    place
                }
                None => {
                    self.cells.push(cell);
                    u32::try_from(self.cells.len() - 1).expect("connections are bounded")
                }
            };
        }
        Chain { first, len: u32::try_from(bytes.len()).expect("tables are small") }
    }

    fn take(&mut self, chain: &Chain) -> Vec<u8> {
        let len = chain.len as usize;
        let mut bytes = Vec::with_capacity(len);
        let mut place = chain.first;
        while place != NONE {
            let cell = &self.cells[place as usize];
            let piece = CELL_BYTES.min(len - bytes.len());
            bytes.extend_from_slice(&cell.bytes[..piece]);
            self.free.push(place);
            place = cell.next;
        }
        bytes
    }

    /// Gives memory back behind the last cell that is in use.
    pub fn release_memory(&mut self) {
        let mut is_used = vec![true; self.cells.len()];
        self.free.iter().for_each(|place| is_used[*place as usize] = false);
        let len = is_used.iter().rposition(|is_used| *is_used).map_or(0, |last| last + 1);
        self.cells.truncate(len);
        self.cells.shrink_to_fit();
        self.free.retain(|place| (*place as usize) < len);
        self.free.shrink_to_fit();
    }

    /// Bytes that connections which rest have here now.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        (self.cells.len() - self.free.len()) * size_of::<Cell>()
    }
}

impl<T> Connection<T> {
    /// Frees all memory of a connection that is idle: what its peer may still refer to goes to `bytes`, which is at most 4 KiB of
    /// fields, and the last streams that were reset.
    ///
    /// # Panics
    /// When a stream is open, or a part of a field block has come.
    pub fn rest(mut self, bytes: &mut RestingBytes) -> RestingConnection {
        assert!(self.is_empty() && self.block.is_none(), "it is idle");
        self.forget_resets(self.resets.len().saturating_sub(RESETS_KEPT_MIN));
        // All of them by name, so that none is forgotten.
        let Self {
            role,
            settings,
            phase,
            peer,
            is_acknowledged,
            begun_ms,
            pings,
            decoder,
            encoder,
            streams: _,
            send_order: _,
            stalls: _,
            is_stalled: _,
            large_heads_bytes: _,
            last,
            left_out,
            requests,
            refused,
            last_accepted,
            peer_last,
            send_window,
            receive_window,
            block: _,
            resets,
            reset_forgotten,
            priorities,
            abuse,
            known_request: _,
            known_answer: _,
            known_response: _,
            block_bytes,
            fault_at: _,
        } = self;
        let packed = pack(&resets, &priorities, &decoder.table);
        let own_table = encoder.rest();
        RestingConnection {
            role,
            settings,
            phase,
            peer,
            is_acknowledged,
            begun_ms,
            pings,
            table_bytes_max: decoder.table.size_max(),
            own_table,
            last,
            left_out,
            requests,
            refused,
            last_accepted,
            peer_last,
            send_window,
            receive_window,
            reset_forgotten,
            abuse,
            block_bytes,
            kept: bytes.keep(&packed),
        }
    }
}

impl RestingConnection {
    /// The connection as it was, whose own table is empty; what the peer has put into its table is there.
    pub fn wake<T>(self, bytes: &mut RestingBytes) -> Connection<T> {
        let (resets, priorities, table) = unpack(self.table_bytes_max, &bytes.take(&self.kept));
        let (table_bytes_max, least_size) = self.own_table;
        Connection {
            role: self.role,
            settings: self.settings,
            phase: self.phase,
            peer: self.peer,
            is_acknowledged: self.is_acknowledged,
            begun_ms: self.begun_ms,
            pings: self.pings,
            decoder: Decoder { table },
            encoder: Encoder::rested(table_bytes_max, least_size),
            streams: Streams::default(),
            send_order: SendOrder::default(),
            stalls: 0,
            is_stalled: false,
            large_heads_bytes: 0,
            last: self.last,
            left_out: self.left_out,
            requests: self.requests,
            refused: self.refused,
            last_accepted: self.last_accepted,
            peer_last: self.peer_last,
            send_window: self.send_window,
            receive_window: self.receive_window,
            block: None,
            resets,
            reset_forgotten: self.reset_forgotten,
            priorities,
            abuse: self.abuse,
            known_request: None,
            known_answer: None,
            known_response: None,
            block_bytes: self.block_bytes,
            fault_at: 0,
        }
    }
}

/// How many resets and priorities there are, these, and the entries of the table; nothing at all where there is none of them.
fn pack(resets: &VecDeque<u32>, priorities: &VecDeque<(u32, Priority)>, table: &Table) -> Vec<u8> {
    let mut packed = Vec::new();
    if resets.is_empty() && priorities.is_empty() && table.len() == 0 {
        return packed;
    }
    for count in [resets.len(), priorities.len()] {
        packed.extend_from_slice(&u16::try_from(count).expect("they are few").to_ne_bytes());
    }
    resets.iter().for_each(|stream| packed.extend_from_slice(&stream.to_ne_bytes()));
    for (stream, Priority { urgency, is_incremental }) in priorities {
        packed.extend_from_slice(&stream.to_ne_bytes());
        packed.extend_from_slice(&[*urgency, u8::from(*is_incremental)]);
    }
    table.pack(&mut packed);
    packed
}

fn unpack(
    table_bytes_max: usize,
    packed: &[u8],
) -> (VecDeque<u32>, VecDeque<(u32, Priority)>, Table) {
    if packed.is_empty() {
        return (VecDeque::new(), VecDeque::new(), Table::unpacked(table_bytes_max, &[]));
    }
    let mut rest = packed;
    let [resets, priorities] = [(); 2].map(|()| u16::from_ne_bytes(first(&mut rest)));
    let resets = (0..resets).map(|_| u32::from_ne_bytes(first(&mut rest))).collect();
    let priorities = (0..priorities).map(|_| {
        let stream = u32::from_ne_bytes(first(&mut rest));
        let [urgency, is_incremental] = first(&mut rest);
        (stream, Priority { urgency, is_incremental: is_incremental != 0 })
    });
    let priorities = priorities.collect();
    (resets, priorities, Table::unpacked(table_bytes_max, rest))
}

/// Takes so many bytes from the front.
fn first<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, behind) = rest.split_first_chunk().expect("as it was packed");
    *rest = behind;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::h2::frame::{self, PREFACE};
    use crate::h2::{ErrorCode, Event, Output, Scratch};

    #[test]
    fn bytes_come_back_as_they_were_kept_whatever_is_kept_and_taken_between() {
        let mut bytes = RestingBytes::default();
        let text = |seed: usize| (0..seed % 200).map(|at| (at + seed) as u8).collect::<Vec<u8>>();
        let mut kept = VecDeque::new();
        let mut random = 3_usize;
        for _ in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
            let seed = random >> 8;
            if seed % 5 < 3 && kept.len() < 100 {
                kept.push_back((seed, bytes.keep(&text(seed))));
            } else if let Some((seed, chain)) = kept.pop_front() {
                assert_eq!(bytes.take(&chain), text(seed));
            }
            if seed.is_multiple_of(97) {
                bytes.release_memory();
            }
        }
        for (seed, chain) in kept {
            assert_eq!(bytes.take(&chain), text(seed));
        }
        assert_eq!(bytes.used_bytes(), 0);
        bytes.release_memory();
        assert_eq!((bytes.cells.capacity(), bytes.free.capacity()), (0, 0));
    }

    /// A server that had as many streams as may be open, each with a field of its own in the tables of both directions; one
    /// of them was reset, and the next one has a priority.
    fn busy() -> Connection<[u64; 8]> {
        let mut server = Connection::<[u64; 8]>::new(Role::Server, Settings::DEFAULT);
        let mut room = vec![0; 1 << 16];
        let mut scratch = Scratch::default();
        let mut input = [PREFACE, b"\0\0\0\x04\0\0\0\0\0"].concat();
        for id in (1..200_u32).step_by(2) {
            let agent = format!("a browser, number {id:03}");
            let block = [b"\x82\x86\x84\x01\x01a\x7a\x15", agent.as_bytes()].concat();
            input.extend_from_slice(&frame::head(block.len(), frame::HEADERS, 5, id));
            input.extend_from_slice(&block);
        }
        input.extend_from_slice(&frame::head(7, frame::PRIORITY_UPDATE, 0, 0));
        input.extend_from_slice(&[0, 0, 0, 201, b'u', b'=', b'1']);
        let mut out = Output::new(&mut room);
        let mut at = 0;
        let mut open = Vec::new();
        loop {
            let step = server.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("sound");
            at += step.used;
            match step.event {
                Some(Event::Request { stream, .. }) => open.push(stream),
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(open.len(), 100);
        for stream in open {
            let head = format!("HTTP/1.1 200 OK\r\nX: {stream}\r\nETag: {stream}\r\n\r\n");
            server.send_head(&mut out, stream, head.as_bytes(), false);
            server.set_sending(stream, crate::h2::Sending::Data);
            assert_eq!(server.next_sender(), Some(stream));
            if stream == 7 {
                server.reset(&mut out, stream, ErrorCode::CANCEL).expect("it is there");
                continue;
            }
            server.send_data(&mut out, stream, b"body", true);
            server.take_done(stream).expect("both have ended");
        }
        server
    }

    #[test]
    fn a_connection_that_had_many_streams_keeps_its_table_alone_when_it_rests() {
        let mut bytes = RestingBytes::default();
        let resting = busy().rest(&mut bytes);
        assert!(size_of::<RestingConnection>() <= 320, "{}", size_of::<RestingConnection>());
        // What the client may still refer to, and no more: 65 entries of 31 bytes, each with its lengths, a reset and a priority.
        let kept = 4 + 4 + 6 + 65 * (4 + 31);
        assert_eq!(resting.kept.len, kept);
        assert!(bytes.used_bytes() <= kept as usize * 64 / 60 + 64, "{}", bytes.used_bytes());
        let woken: Connection<[u64; 8]> = resting.wake(&mut bytes);
        assert_eq!(bytes.used_bytes(), 0);
        drop(woken);
    }

    #[test]
    fn a_connection_that_has_rested_is_as_it_was() {
        let mut bytes = RestingBytes::default();
        let mut one = busy();
        let before = format!("{:?}", one.decoder.table.get(0));
        // Twice: what was woken rests again.
        for _ in 0..2 {
            one = one.rest(&mut bytes).wake(&mut bytes);
        }
        assert_eq!(format!("{:?}", one.decoder.table.get(0)), before);
        assert_eq!(one.decoder.table.len(), 65);
        assert_eq!((one.last, one.requests, one.resets.len()), (199, 100, 1));
        assert_eq!(one.send_window.room(), 65_535 - 99 * 4);
        assert_eq!(one.priorities, [(201, Priority { urgency: 1, is_incremental: false })]);
        let mut room = vec![0; 4096];
        let mut out = Output::new(&mut room);
        let mut scratch = Scratch::default();
        // A frame of the stream that was reset is still dropped; a request by the table is read; one of a stream that is over
        // is a fault.
        let mut input = frame::head(3, frame::DATA, 0, 7).to_vec();
        input.extend_from_slice(b"abc");
        input.extend_from_slice(&frame::head(7, frame::HEADERS, 5, 201));
        input.extend_from_slice(b"\x82\x86\x84\x01\x01a\xbe");
        let step = one.read(&input, &mut scratch, &mut out, &Limits::DEFAULT, 0).expect("sound");
        let Some(Event::Request { stream: 201, request, .. }) = step.event else {
            panic!("{:?}", step.event)
        };
        assert_eq!(request.fields.first("user-agent"), Some(&b"a browser, number 199"[..]));
        assert_eq!(step.used, input.len());
        // The own table is empty, which the next block says.
        let start = out.len();
        one.send_head(&mut out, 201, b"HTTP/1.1 204 No Content\r\n\r\n", true);
        assert_eq!(out.bytes()[start + 9..], [0x20, 0x3f, 0xe1, 0x1f, 0x89]);
        let late = [&frame::head(3, frame::DATA, 0, 9)[..], b"abc"].concat();
        assert!(one.read(&late, &mut scratch, &mut out, &Limits::DEFAULT, 0).is_err());
    }
}
