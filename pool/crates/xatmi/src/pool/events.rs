//! Subscriptions to events, and the mailboxes of contexts that take unsolicited messages.
//!
//! The manager keeps the list and lists the subscribers of an event; the process that posts it looks at filters and
//! delivers, so that no buffer comes here. What a connection put on the list goes with it.

use std::collections::{BTreeMap, BTreeSet};

use super::Pool;
use crate::control::{Answer, MailboxRow, ROWS_MAX, Request, SubscriberRow};
use crate::expression::EventPattern;

/// Most subscriptions of a pool.
const SUBSCRIPTIONS_MAX: usize = 1024;
/// Longest name of an event, pattern of names and filter, in bytes.
const NAME_LEN_BYTES_MAX: usize = 31;
const TEXT_LEN_BYTES_MAX: usize = 255;

#[derive(Debug, Default)]
pub(super) struct Events {
    subscriptions: BTreeMap<u64, Subscription>,
    mailboxes: BTreeMap<u64, MailboxRow>,
    handles: u64,
    /// Events that were posted.
    pub(super) posted: u64,
    /// Subscriptions that they matched.
    pub(super) matched: u64,
}

#[derive(Debug)]
struct Subscription {
    connection: u64,
    pattern: EventPattern,
    row: SubscriberRow,
}

impl Events {
    /// A connection ended.
    pub(super) fn leave(&mut self, connection: u64) {
        self.mailboxes.remove(&connection);
        self.subscriptions.retain(|_, subscription| subscription.connection != connection);
    }

    fn subscribe(
        &mut self,
        connection: u64,
        pattern: &str,
        row: SubscriberRow,
    ) -> Result<u64, Answer> {
        if pattern.len() > TEXT_LEN_BYTES_MAX || row.filter.len() > TEXT_LEN_BYTES_MAX {
            let why = format!("a pattern and a filter have at most {TEXT_LEN_BYTES_MAX} bytes");
            return Err(Answer::Refused { why });
        }
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let why = format!("a pool has at most {SUBSCRIPTIONS_MAX} subscriptions");
            return Err(Answer::Full { why });
        }
        let pattern = EventPattern::new(pattern).map_err(|why| Answer::Refused { why })?;
        if row.service.is_none() && !self.mailboxes.contains_key(&connection) {
            let why = "a subscription without a service needs a mailbox".to_owned();
            return Err(Answer::Refused { why });
        }
        self.handles += 1;
        self.subscriptions.insert(self.handles, Subscription { connection, pattern, row });
        Ok(self.handles)
    }

    fn unsubscribe(&mut self, connection: u64, handle: Option<u64>) -> usize {
        let before = self.subscriptions.len();
        self.subscriptions.retain(|known, subscription| {
            subscription.connection != connection || handle.is_some_and(|handle| handle != *known)
        });
        before - self.subscriptions.len()
    }

    /// The subscribers of an event. A service with the same filter is one, however many contexts subscribed for it:
    /// each copy of a server does.
    fn post(&mut self, event: &str) -> Result<Vec<SubscriberRow>, Answer> {
        if event.is_empty() || event.len() > NAME_LEN_BYTES_MAX {
            let why = format!("the name of an event has 1 to {NAME_LEN_BYTES_MAX} bytes");
            return Err(Answer::Refused { why });
        }
        let wanting = self.subscriptions.values().filter(|known| known.pattern.fits(event));
        let mut services = BTreeSet::new();
        let rows: Vec<_> = wanting
            .filter(|known| {
                let SubscriberRow { filter, service, .. } = &known.row;
                service.as_ref().is_none_or(|service| services.insert((service, filter)))
            })
            .filter_map(|known| {
                let mailbox = self.mailboxes.get(&known.connection).cloned();
                let is_reachable = known.row.service.is_some() || mailbox.is_some();
                is_reachable.then(|| SubscriberRow { mailbox, ..known.row.clone() })
            })
            .collect();
        self.posted += 1;
        self.matched += rows.len() as u64;
        Ok(rows)
    }
}

impl Pool {
    /// What a connection says of events; others are given back.
    pub(super) fn serve_events(&mut self, number: u64, request: Request) -> Option<Request> {
        let events = &mut self.events;
        let said = match request {
            Request::Mailbox(row) => {
                events.mailboxes.insert(number, row);
                Ok(String::new())
            }
            Request::Subscribe { pattern, filter, service } => {
                let row = SubscriberRow { filter, service, mailbox: None };
                events.subscribe(number, &pattern, row).map(|handle| handle.to_string())
            }
            Request::Unsubscribe { handle } => Ok(events.unsubscribe(number, handle).to_string()),
            Request::Post { event } => events.post(&event).map(|rows| {
                for rows in rows.chunks(ROWS_MAX) {
                    self.reply(number, &Answer::Subscribers(rows.to_vec()));
                }
                String::new()
            }),
            Request::Mailboxes => {
                let rows: Vec<_> = events.mailboxes.values().cloned().collect();
                for rows in rows.chunks(ROWS_MAX) {
                    self.reply(number, &Answer::Mailboxes(rows.to_vec()));
                }
                Ok(String::new())
            }
            other => return Some(other),
        };
        let last = said.map_or_else(|refused| refused, |message| Answer::Done { message });
        self.reply(number, &last);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(service: Option<&str>) -> SubscriberRow {
        let service = service.map(str::to_owned);
        SubscriberRow { filter: String::new(), service, mailbox: None }
    }

    #[test]
    fn subscriptions_match_by_pattern_and_go_with_their_connection() {
        let mut events = Events::default();
        let error = events.subscribe(1, "A.*", row(None)).expect_err("no mailbox");
        assert!(format!("{error:?}").contains("needs a mailbox"), "{error:?}");
        let mailbox = MailboxRow { pid: 1, context: 2, nonce: 3, ..MailboxRow::default() };
        events.mailboxes.insert(1, mailbox);
        let first = events.subscribe(1, "A.*", row(None)).expect("a mailbox");
        let second = events.subscribe(2, "AB", row(Some("LISTEN"))).expect("a service");
        assert_ne!(first, second);
        assert_eq!(events.post("AB").expect("a name").len(), 2);
        assert_eq!(events.post("ABC").expect("a name").len(), 1);
        assert_eq!((events.posted, events.matched), (2, 3));
        assert_eq!(events.unsubscribe(2, Some(first)), 0, "it is another's");
        assert_eq!(events.unsubscribe(1, None), 1);
        events.leave(2);
        assert_eq!(events.post("AB").expect("a name").len(), 0);
    }

    #[test]
    fn copies_of_a_server_that_subscribe_for_one_service_are_one_subscriber() {
        let mut events = Events::default();
        for copy in 1..=3 {
            events.subscribe(copy, "BOOKED", row(Some("BOOK"))).expect("taken");
        }
        events.subscribe(1, "BOOKED", row(Some("PRINT"))).expect("another service");
        let filtered = SubscriberRow { filter: "urgent.*".to_owned(), ..row(Some("BOOK")) };
        events.subscribe(2, "BOOKED", filtered).expect("another filter");
        assert_eq!(events.post("BOOKED").expect("a name").len(), 3);
        assert_eq!(events.matched, 3);
        events.leave(1);
        assert_eq!(events.post("BOOKED").expect("a name").len(), 2, "the others want it still");
    }

    #[test]
    fn texts_and_numbers_are_bounded() {
        let mut events = Events::default();
        for pattern in ["(".to_owned(), "x".repeat(256), "(a{1000}){1000}".to_owned()] {
            events.subscribe(1, &pattern, row(Some("S"))).expect_err(&pattern);
        }
        assert!(events.post("").is_err() && events.post(&"x".repeat(32)).is_err());
        for _ in 0..SUBSCRIPTIONS_MAX {
            events.subscribe(1, "x", row(Some("S"))).expect("room");
        }
        let full = events.subscribe(1, "x", row(Some("S"))).expect_err("full");
        assert!(matches!(&full, Answer::Full { why } if why.contains("1024")), "{full:?}");
    }
}
