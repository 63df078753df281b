//! The user's rules for fields of answers: which apply to a request, and then to a status.
//!
//! The path is known when a request comes, the status when its answer does: in between a request has the rules for its
//! path as bits in their order. Answers of pollux's own (`common`) and those that a proxy passes on (`proxied`) are changed
//! by the same ones.

use std::cell::RefCell;

use pollux_http::Request;

use crate::config::AnswerRule;
use crate::config::answers::{decoded, is_free};
use crate::fields::{self, FieldRule};

/// The rules of a front end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    all: Box<[Rule]>,
    /// Those that apply whatever the path is, as bits.
    pathless: u64,
    /// Those that an answer of pollux's own takes: what that says of itself stays true.
    for_own: u64,
    has_paths: bool,
    /// Where paths are decoded.
    room: RefCell<Vec<u8>>,
}

/// A rule with those behind it that take its place where they apply too.
#[derive(Clone, Debug)]
struct Rule {
    rule: AnswerRule,
    /// As bits.
    replaced_by: u64,
}

impl Rules {
    /// These, of which there are 64 at most.
    pub(crate) fn new(rules: &[AnswerRule]) -> Self {
        let mut new = Self::default();
        let mut all: Vec<Rule> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            let name = rule.rule.name();
            if !matches!(rule.rule, FieldRule::Add(..)) {
                let before = all.iter_mut();
                let same = before.filter(|one| one.rule.rule.name().eq_ignore_ascii_case(name));
                same.for_each(|one| one.replaced_by |= 1 << at);
            }
            new.has_paths |= rule.has_path();
            new.pathless |= u64::from(!rule.has_path()) << at;
            new.for_own |= u64::from(is_free(&rule.rule).is_ok()) << at;
            all.push(Rule { rule: rule.clone(), replaced_by: 0 });
        }
        new.all = all.into();
        new
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether some paths get fields that others don't.
    pub(crate) fn has_paths(&self) -> bool {
        self.has_paths
    }

    /// Those for the path of a request.
    #[inline]
    pub(crate) fn for_request(&self, request: &Request<'_>) -> u64 {
        if self.has_paths { self.for_path(request) } else { self.pathless }
    }

    fn for_path(&self, request: &Request<'_>) -> u64 {
        let mut room = self.room.borrow_mut();
        let path = request.target.path().and_then(|path| decoded(path, &mut room));
        let bit = |(at, one): (usize, &Rule)| u64::from(one.rule.is_for_path(path)) << at;
        self.all.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    }

    /// Those for bytes that can't be read as a request.
    pub(crate) fn pathless(&self) -> u64 {
        self.pathless
    }

    /// Of those for a request the ones that apply to an answer of this status, which a backend gave.
    #[inline]
    pub(crate) fn applying(&self, mut bits: u64, status: u16) -> Applying<'_> {
        for (at, one) in self.all.iter().enumerate() {
            bits &= !(u64::from(!one.rule.is_for_status(status)) << at);
        }
        let asked = bits;
        for (at, one) in self.all.iter().enumerate() {
            bits &= !(u64::from(asked & one.replaced_by != 0) << at);
        }
        Applying { all: &self.all, bits }
    }

    /// The same for an answer of pollux's own.
    #[inline]
    pub(crate) fn applying_to_own(&self, bits: u64, status: u16) -> Applying<'_> {
        let applying = self.applying(bits, status);
        Applying { bits: applying.bits & self.for_own, ..applying }
    }
}

/// Rules that apply to one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applying<'r> {
    all: &'r [Rule],
    bits: u64,
}

impl<'r> Applying<'r> {
    /// In their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'r FieldRule> + Clone {
        let applies = move |(at, _): &(usize, &Rule)| self.bits & 1 << at != 0;
        self.all.iter().enumerate().filter(applies).map(|(_, one)| &one.rule.rule)
    }

    /// Whether a field that came goes no further.
    #[inline]
    pub(crate) fn drops(self, name: &str) -> bool {
        self.bits != 0 && fields::drops(self.iter(), name)
    }

    /// Whether a line of this field is added.
    pub(crate) fn adds(self, name: &str) -> bool {
        let adds = |rule: &FieldRule| !matches!(rule, FieldRule::Remove(_));
        self.iter().any(|rule| adds(rule) && rule.name().eq_ignore_ascii_case(name))
    }

    /// Writes the lines that they ask for.
    #[inline]
    pub(crate) fn write_added(self, out: &mut Vec<u8>) {
        fields::write_added(out, self.iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_apply_by_status_and_a_later_one_takes_the_place_of_an_earlier_one() {
        let texts = ["add A: 1", "5xx set A: 2", "add A: 3", "remove B", "set Content-Type: x/y"];
        let rules = texts.map(|text| AnswerRule::read(text).expect(text));
        let rules = Rules::new(&rules);
        let shown = |applying: Applying<'_>| {
            let shown: Vec<_> = applying.iter().map(ToString::to_string).collect();
            shown.join(", ")
        };
        let all = rules.pathless();
        let usual = "add A: 1, add A: 3, remove B, set Content-Type: x/y";
        assert_eq!(shown(rules.applying(all, 200)), usual);
        let failed = rules.applying(all, 502);
        assert_eq!(shown(failed), "set A: 2, add A: 3, remove B, set Content-Type: x/y");
        assert_eq!(["a", "b", "c"].map(|name| failed.drops(name)), [true, true, false]);
        let mut out = Vec::new();
        failed.write_added(&mut out);
        assert_eq!(out, b"A: 2\r\nA: 3\r\nContent-Type: x/y\r\n");
        assert_eq!(shown(rules.applying_to_own(all, 502)), "set A: 2, add A: 3");
        assert_eq!(shown(Rules::new(&[]).applying(0, 200)), "");
    }
}
