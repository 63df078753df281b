//! A small protocol that uses everything a session can do.
//!
//! | line | answer |
//! |---|---|
//! | `echo TEXT` | the line |
//! | `big N` | N bytes, of which each call sends what there is room for |
//! | `file OFFSET LEN` | a range of the shared file, behind the word `file` |
//! | `pause` | stops reading until a deadline 20 ms later, then says `resumed` |
//! | `later` | wakes itself, then says `woken` |
//! | `close`, `linger`, `abort` | the end of that kind |

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pollux_engine::{Actions, CloseCause, FileRange, Moment, Session};

/// What the sessions of one loop share.
pub(crate) struct Shared {
    pub(crate) file: File,
    pub(crate) causes: Vec<CloseCause>,
}

pub(crate) struct Lines {
    sent: usize,
    until: usize,
    is_paused: bool,
}

impl Lines {
    /// The bytes of `big`: position modulo a prime, so that an exchange would show.
    pub(crate) fn byte(position: usize) -> u8 {
        (position % 251) as u8
    }

    fn answer(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, line: &str) -> bool {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match word {
            "big" => {
                (self.sent, self.until) = (0, number() as usize);
                self.send_more(actions);
                return true;
            }
            "file" => {
                actions.send(b"file\n");
                let file = OwnedFd::from(shared.file.try_clone().expect("a descriptor is left"));
                actions.send_file(FileRange { file, offset: number(), len: number() });
                actions.call_again();
                return true;
            }
            "pause" => {
                actions.pause_input();
                self.is_paused = true;
                actions.set_deadline(actions.now().at + Duration::from_millis(20));
                return true;
            }
            "later" => {
                actions.wake(actions.id());
                actions.pause_input();
                return true;
            }
            "close" => actions.close(),
            "linger" => actions.linger(),
            "abort" => actions.abort(),
            _ => {
                actions.send(line.as_bytes());
                actions.send(b"\n");
            }
        }
        matches!(word, "close" | "linger" | "abort")
    }

    fn send_more(&mut self, actions: &mut Actions<'_>) {
        let len = actions.room().min(self.until - self.sent);
        for (at, byte) in actions.spare()[..len].iter_mut().enumerate() {
            *byte = Self::byte(self.sent + at);
        }
        actions.advance(len);
        self.sent += len;
        actions.call_again();
    }
}

impl Session for Lines {
    type Shared = Shared;

    fn accepted(_: &mut Shared, actions: &mut Actions<'_>) -> Self {
        actions.send(b"hello\n");
        Self { sent: 0, until: 0, is_paused: false }
    }

    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        let mut used = 0;
        while let Some(len) = input[used..].iter().position(|byte| *byte == b'\n') {
            if actions.room() < len + 1 {
                actions.call_again();
                break;
            }
            let line = String::from_utf8_lossy(&input[used..used + len]).into_owned();
            used += len + 1;
            if self.answer(shared, actions, &line) {
                break;
            }
        }
        used
    }

    fn on_end(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.send(b"bye\n");
        actions.close();
    }

    fn on_drained(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        if self.sent < self.until {
            self.send_more(actions);
        }
    }

    fn on_deadline(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        assert_eq!(actions.deadline(), Moment::NEVER, "a deadline that fired is not set");
        if std::mem::take(&mut self.is_paused) {
            actions.send(b"resumed\n");
            actions.resume_input();
        }
    }

    fn on_wake(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.send(b"woken\n");
        actions.resume_input();
    }

    fn on_drain(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        // An answer that has begun is finished first.
        if self.sent == self.until {
            actions.send(b"drained\n");
            actions.close();
        }
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        shared.causes.push(cause);
    }
}
