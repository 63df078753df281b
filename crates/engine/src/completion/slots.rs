//! Slots for the connections of the completion loop: dense, reused, each use with its own
//! generation.

use pollux_poller::Token;

/// A table of `T` by [`Token`].
#[derive(Debug)]
pub(super) struct Slots<T> {
    entries: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Option<T>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// The token that the next [`Slots::insert`] will use.
    pub(super) fn next_token(&self) -> Token {
        match self.free.last() {
            Some(slot) => Token::new(*slot, self.entries[*slot as usize].generation),
            None => Token::new(self.entries.len() as u32, 0),
        }
    }

    pub(super) fn insert(&mut self, content: T) -> Token {
        let token = self.next_token();
        match self.free.pop() {
            Some(slot) => self.entries[slot as usize].content = Some(content),
            None => self.entries.push(Slot { generation: 0, content: Some(content) }),
        }
        token
    }

    /// Empties the slot of `token`; its next use has another generation.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        self.get_mut(token)?;
        let slot = &mut self.entries[token.slot() as usize];
        slot.generation = token.next_generation().generation();
        self.free.push(token.slot());
        slot.content.take()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.entries.get_mut(token.slot() as usize)?;
        slot.content.as_mut().filter(|_| slot.generation == token.generation())
    }

    /// The token of what is in `slot` now.
    pub(super) fn token_of(&self, slot: u32) -> Option<Token> {
        let entry = self.entries.get(slot as usize)?;
        entry.content.as_ref().map(|_| Token::new(slot, entry.generation))
    }

    /// The tokens of all that is there.
    pub(super) fn tokens(&self) -> Vec<Token> {
        (0..self.entries.len() as u32).filter_map(|slot| self.token_of(slot)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| {
            let content = entry.content.as_ref()?;
            Some((Token::new(slot as u32, entry.generation), content))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_does_not_answer_to_its_old_token() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.next_token().slot(), first.slot());
        let second = slots.insert('b');
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut 'b'));
        assert_eq!(slots.tokens(), [second]);
    }
}
