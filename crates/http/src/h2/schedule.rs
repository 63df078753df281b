//! Whose turn it is to send: streams that have something to send, by their urgency (RFC 9218 10).
//!
//! ```text
//!  ends     streams of which only the end is left: no window holds those up
//!  0 ─┬─ in order: 1 ─ 5 ─ 9      one after the other, each until it is through
//!     └─ turns:    3 ─ 7 ─ 3 ..   a frame of each
//!  1 ─┬─ ..
//!  .. 7
//! ```
//!
//! The most urgent streams are sent first. Inside one urgency a client's streams that it wants whole (non-incremental) go
//! one by one in the order of their numbers, and those of which parts are of use, or of which it has said nothing, take
//! turns; where there are both, each second frame is of the latter. So that no stream waits for ever, each 32nd frame is of
//! a lower urgency, where one waits: those take such frames in send_order.
//!
//! A stream whose window is closed is in no list until that opens. Streams are known by their places, in lists that
//! are threaded through one table: nothing here depends on how many there are, but for one of an order that returns, which
//! is put behind those before it.

use crate::h2::priority::{Priority, URGENCIES};

/// So many frames of the most urgent streams are sent before one of the others.
const PASSED_MAX: u8 = 31;

const NONE: u32 = u32::MAX;

/// Of each urgency one in order and one of turns, behind that of the ends.
const LISTS: usize = 1 + 2 * URGENCIES;
const ENDS: u8 = 0;

/// What a stream has to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// Nothing for now.
    Nothing,
    /// More of a body, which takes its windows.
    Data,
    /// Its end alone.
    End,
}

/// Where a stream stands in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Nowhere,
    /// It waits for its own window.
    Blocked,
    List(u8),
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    before: u32,
    /// The number of its stream.
    id: u32,
    at: Where,
}

const UNLINKED: Link = Link { next: NONE, before: NONE, id: 0, at: Where::Nowhere };

/// All that have something to send.
#[derive(Debug)]
pub(crate) struct SendOrder {
    /// By the places of the streams; as long as is needed.
    links: Vec<Link>,
    /// The first of each list, which are rings.
    heads: [u32; LISTS],
    /// Which of them have something.
    filled: u32,
    /// Urgencies whose last frame was of those in order.
    was_in_order: u8,
    /// Frames of the most urgent ones while others waited.
    passed: u8,
    /// Which urgency had the last frame of those that wait.
    favoured: u8,
}

impl Default for SendOrder {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            heads: [NONE; LISTS],
            filled: 0,
            was_in_order: 0,
            passed: 0,
            favoured: 0,
        }
    }
}

impl SendOrder {
    /// Says what the stream at this place has to send.
    pub(crate) fn set(&mut self, place: usize, id: u32, priority: Priority, sending: Sending) {
        let now = self.links.get(place).map_or(Where::Nowhere, |link| link.at);
        let then = match sending {
            Sending::Nothing => Where::Nowhere,
            Sending::End => Where::List(ENDS),
            // What is known of its window stands.
            Sending::Data if now == Where::Blocked => Where::Blocked,
            Sending::Data => Where::List(list_of(priority)),
        };
        if now == then {
            return;
        }
        if self.links.len() <= place {
            self.links.resize(place + 1, UNLINKED);
        }
        self.take_out(place);
        self.links[place].id = id;
        match then {
            Where::List(list) => self.put_in(place, list),
            Where::Nowhere | Where::Blocked => self.links[place].at = then,
        }
    }

    /// The stream at this place is no more.
    #[inline]
    pub(crate) fn forget(&mut self, place: usize) {
        if self.links.get(place).is_some_and(|link| link.at != Where::Nowhere) {
            self.take_out(place);
        }
    }

    /// The urgency of a stream is another one from now on.
    pub(crate) fn change(&mut self, place: usize, priority: Priority) {
        let Some(link) = self.links.get(place) else { return };
        if matches!(link.at, Where::List(list) if list != ENDS) {
            self.set(place, link.id, priority, Sending::Data);
        }
    }

    /// The window of a stream has closed.
    pub(crate) fn block(&mut self, place: usize) {
        self.take_out(place);
        self.links[place].at = Where::Blocked;
    }

    /// The window of a stream is open.
    #[inline]
    pub(crate) fn unblock(&mut self, place: usize, priority: Priority) {
        if self.links.get(place).is_some_and(|link| link.at == Where::Blocked) {
            self.put_in(place, list_of(priority));
        }
    }

    /// Whether there is a stream that could send, as far as its own window is concerned.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Whether there is one of which a body waits.
    pub(crate) fn has_data(&self) -> bool {
        self.filled & !1 != 0
    }

    /// Whether a new stream of this kind has to wait for others.
    #[inline]
    pub(crate) fn is_behind(&self, priority: Priority) -> bool {
        // The lists in front of its own, without the ends; those that go in order wait for each other, too.
        let own = 1 + 2 * priority.urgency;
        let first_behind = if priority.is_incremental { own } else { own + 1 };
        self.filled & ((1_u32 << first_behind) - 2) != 0
    }

    /// The place whose turn it is: with a window of the connection that is closed one that has only its end to send.
    pub(crate) fn first(&self, is_window_open: bool) -> Option<usize> {
        let list = match self.filled {
            0 => return None,
            filled if filled & 1 != 0 => ENDS,
            _ if !is_window_open => return None,
            _ => self.list_of_turn(),
        };
        Some(self.heads[usize::from(list)] as usize)
    }

    /// Whether the stream at this place has only its end to send.
    pub(crate) fn is_at_end(&self, place: usize) -> bool {
        self.links[place].at == Where::List(ENDS)
    }

    fn list_of_turn(&self) -> u8 {
        let waiting = self.urgencies();
        let lower = waiting & waiting.wrapping_sub(1);
        let mut urgency = waiting.trailing_zeros();
        if self.passed >= PASSED_MAX && lower != 0 {
            let behind = lower & !((2_u32 << self.favoured) - 1);
            urgency = if behind != 0 { behind } else { lower }.trailing_zeros();
        }
        let in_order = 1 + 2 * urgency as u8;
        let has = |list: u8| self.filled & (1 << list) != 0;
        match (has(in_order), has(in_order + 1)) {
            (true, true) if self.was_in_order & (1 << urgency) != 0 => in_order + 1,
            (true, _) => in_order,
            (false, _) => in_order + 1,
        }
    }

    /// The urgencies that wait, one bit for each.
    fn urgencies(&self) -> u32 {
        (0..URGENCIES as u32).fold(0, |urgencies, urgency| {
            let has = (self.filled >> (1 + 2 * urgency)) & 3 != 0;
            urgencies | (u32::from(has) << urgency)
        })
    }

    /// A frame was sent of the stream at this place.
    pub(crate) fn sent(&mut self, place: usize) {
        let Some(Link { at: Where::List(list), next, .. }) = self.links.get(place).copied() else {
            return;
        };
        if list == ENDS {
            return;
        }
        let urgency = (list - 1) / 2;
        let is_in_order = is_in_order(list);
        let waiting = self.urgencies();
        if u32::from(urgency) != waiting.trailing_zeros() {
            (self.passed, self.favoured) = (0, urgency);
        } else if waiting & waiting.wrapping_sub(1) != 0 {
            self.passed = self.passed.saturating_add(1);
        }
        self.was_in_order &= !(1 << urgency);
        self.was_in_order |= u8::from(is_in_order) << urgency;
        let head = &mut self.heads[usize::from(list)];
        if !is_in_order && *head as usize == place {
            *head = next;
        }
    }

    fn take_out(&mut self, place: usize) {
        let Link { next, before, at, .. } = self.links[place];
        if let Where::List(list) = at {
            let head = &mut self.heads[usize::from(list)];
            if next as usize == place {
                *head = NONE;
                self.filled &= !(1 << list);
            } else {
                if *head as usize == place {
                    *head = next;
                }
                self.links[before as usize].next = next;
                self.links[next as usize].before = before;
            }
        }
        self.links[place].at = Where::Nowhere;
    }

    /// Puts it last; of a list in order behind those whose numbers are smaller.
    fn put_in(&mut self, place: usize, list: u8) {
        let this = u32::try_from(place).expect("streams are few");
        let head = self.heads[usize::from(list)];
        self.links[place].at = Where::List(list);
        if head == NONE {
            (self.links[place].next, self.links[place].before) = (this, this);
            self.heads[usize::from(list)] = this;
            self.filled |= 1 << list;
            return;
        }
        let next = if is_in_order(list) { self.in_order(place, head) } else { head };
        let before = self.links[next as usize].before;
        (self.links[place].next, self.links[place].before) = (next, before);
        self.links[before as usize].next = this;
        self.links[next as usize].before = this;
        if is_in_order(list) && next == head && self.links[place].id < self.links[head as usize].id
        {
            self.heads[usize::from(list)] = this;
        }
    }

    /// In front of which one of the list it belongs; the head where it is the last, or the first.
    fn in_order(&self, place: usize, head: u32) -> u32 {
        let id = self.links[place].id;
        let last = self.links[head as usize].before;
        if self.links[last as usize].id < id {
            return head;
        }
        let mut at = head;
        while self.links[at as usize].id < id {
            at = self.links[at as usize].next;
        }
        at
    }
}

fn is_in_order(list: u8) -> bool {
    list % 2 == 1
}

fn list_of(priority: Priority) -> u8 {
    1 + 2 * priority.urgency + u8::from(priority.is_incremental)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: bool = false;
    const PARTS: bool = true;

    fn of(urgency: u8, is_incremental: bool) -> Priority {
        Priority { urgency, is_incremental }
    }

    /// Streams that have data without end, by their places, whose numbers are the same.
    fn waiting(priorities: &[Priority]) -> SendOrder {
        let mut send_order = SendOrder::default();
        for (place, priority) in priorities.iter().enumerate() {
            send_order.set(place, place as u32, *priority, Sending::Data);
        }
        send_order
    }

    fn order(send_order: &mut SendOrder, frames: usize) -> Vec<usize> {
        let mut order = Vec::new();
        for _ in 0..frames {
            let Some(place) = send_order.first(true) else { break };
            send_order.sent(place);
            order.push(place);
        }
        order
    }

    #[test]
    fn the_most_urgent_goes_first_and_equal_ones_by_turns_or_in_order() {
        let mut send_order = waiting(&[of(3, PARTS), of(3, PARTS), of(1, PARTS), of(3, PARTS)]);
        assert_eq!(order(&mut send_order, 3), [2, 2, 2]);
        send_order.forget(2);
        assert_eq!(order(&mut send_order, 5), [0, 1, 3, 0, 1]);

        let mut send_order = waiting(&[of(3, WHOLE), of(3, WHOLE), of(3, WHOLE)]);
        assert_eq!(order(&mut send_order, 3), [0, 0, 0]);
        send_order.forget(0);
        send_order.block(1);
        assert_eq!(order(&mut send_order, 2), [2, 2]);
        // It is its turn again, as it was asked for before.
        send_order.unblock(1, of(3, WHOLE));
        assert_eq!(order(&mut send_order, 2), [1, 1]);
    }

    #[test]
    fn what_is_wanted_whole_and_what_is_wanted_in_parts_share_their_urgency() {
        let mut send_order = waiting(&[of(3, WHOLE), of(3, WHOLE), of(3, PARTS), of(3, PARTS)]);
        assert_eq!(order(&mut send_order, 8), [0, 2, 0, 3, 0, 2, 0, 3]);
    }

    #[test]
    fn no_urgency_waits_for_ever() {
        let mut send_order = waiting(&[of(0, PARTS), of(3, PARTS), of(7, WHOLE), of(7, PARTS)]);
        let order = order(&mut send_order, 32 * 8);
        let frames = |place: usize| order.iter().filter(|at| **at == place).count();
        assert_eq!([0, 1, 2, 3].map(frames), [31 * 8, 4, 2, 2]);
        assert!(order[..31].iter().all(|place| *place == 0));
    }

    #[test]
    fn an_end_needs_no_window_and_goes_before_all() {
        let mut send_order = waiting(&[of(0, PARTS), of(7, PARTS)]);
        send_order.set(1, 1, of(7, PARTS), Sending::End);
        assert_eq!((send_order.first(false), send_order.first(true)), (Some(1), Some(1)));
        assert!(send_order.is_at_end(1));
        send_order.set(1, 1, of(7, PARTS), Sending::Nothing);
        assert_eq!((send_order.first(false), send_order.first(true)), (None, Some(0)));
        assert!(send_order.is_behind(of(1, WHOLE)) && !send_order.is_behind(of(0, PARTS)));
        assert!(!send_order.is_behind(of(0, WHOLE)));
        send_order.change(0, of(0, WHOLE));
        assert!(send_order.is_behind(of(0, WHOLE)) && !send_order.is_behind(of(0, PARTS)));
    }

    #[test]
    fn another_urgency_counts_from_then_on() {
        let mut send_order = waiting(&[of(3, PARTS), of(3, PARTS), of(3, PARTS)]);
        send_order.change(1, of(0, WHOLE));
        assert_eq!(order(&mut send_order, 2), [1, 1]);
        send_order.change(1, of(7, WHOLE));
        assert_eq!(order(&mut send_order, 3), [0, 2, 0]);
    }

    /// Against lists of all streams that are sorted anew for each frame.
    #[test]
    fn lists_stay_right_whatever_is_done_to_them() {
        let mut send_order = SendOrder::default();
        // Of each place: its number, its priority, whether it waits for its window.
        let mut model: Vec<Option<(u32, Priority, bool)>> = vec![None; 40];
        let mut random = 5_u32;
        let mut next = 1;
        for _ in 0..50_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pick = random >> 8;
            let place = pick as usize % 40;
            let priority = of((pick >> 8) as u8 % 8, pick & 1 == 0);
            match (&mut model[place], pick % 7) {
                (empty @ None, 0..=2) => {
                    *empty = Some((next, priority, false));
                    send_order.set(place, next, priority, Sending::Data);
                    next += 2;
                }
                (stream @ Some(_), 0) => {
                    *stream = None;
                    send_order.forget(place);
                }
                (Some((_, _, is_blocked @ false)), 1) => {
                    *is_blocked = true;
                    send_order.block(place);
                }
                (Some((_, own, is_blocked @ true)), 2) => {
                    *is_blocked = false;
                    send_order.unblock(place, *own);
                }
                (Some((_, own, false)), 3) => {
                    *own = priority;
                    send_order.change(place, priority);
                }
                _ => {
                    let ready = model.iter().flatten().filter(|(.., is_blocked)| !is_blocked);
                    let urgent = ready.clone().map(|(_, own, _)| own.urgency).min();
                    let first = send_order.first(true);
                    assert_eq!(first.is_some(), urgent.is_some());
                    let Some(at) = first else { continue };
                    let (id, own, is_blocked) = model[at].expect("it is there");
                    assert!(!is_blocked);
                    if send_order.passed < PASSED_MAX {
                        assert_eq!(Some(own.urgency), urgent);
                    }
                    if !own.is_incremental {
                        let alike = ready.filter(|(_, other, _)| *other == own);
                        assert_eq!(alike.map(|(id, ..)| *id).min(), Some(id));
                    }
                    send_order.sent(at);
                }
            }
        }
    }
}
