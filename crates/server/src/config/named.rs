//! Sections that are called by a name: no two of a kind by the same, and one that is named elsewhere has to be there.

use pollux_settings::{Keys, did_you_mean};

/// Refuses two sections of a name, once all else is right.
pub(super) fn refuse_twins<T>(keys: &mut Keys<'_>, section: &str, all: &[T], name: fn(&T) -> &str) {
    let is_second = |at: &usize| all[..*at].iter().any(|other| name(other) == name(&all[*at]));
    if let Some(at) = (0..all.len()).find(is_second)
        && keys.is_right()
    {
        keys.refuse(format!("two [[{section}]] sections are called \"{}\"", name(&all[at])));
    }
}

/// Where the section called `wanted`, which `key` names, stands among those that there are; refused where there is none.
pub(super) fn place_of<'a>(
    keys: &mut Keys<'_>,
    key: &'static str,
    section: &str,
    wanted: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Option<usize> {
    let found = known.clone().position(|name| name == wanted);
    if found.is_none() {
        let near = did_you_mean(wanted, known.clone());
        let expected = if known.next().is_none() { "; expected one in this file" } else { "" };
        keys.note(key, format!("no [[{section}]] is called \"{wanted}\"{near}{expected}"));
    }
    found
}
