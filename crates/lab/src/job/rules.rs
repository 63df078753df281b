//! What must hold between the values of a job: lists without repetition, intervals that
//! fit into the window. Arms have rules of their own (`arms`).
//!
//! Job files and flags are checked by the same rules; a rule answers with what is wrong in
//! words, and its caller knows where that stands.

use std::time::Duration;

use super::kind::length_text;
use super::mistake::did_you_mean;
use crate::axis::{Axis, Value};

/// Most values of one axis; each makes a point of the plan.
const AXIS_VALUES_MAX: usize = 64;
/// Most intervals of one run: each is kept in the result. Ten minutes of the default interval.
const INTERVALS_MAX: u128 = 6000;
/// Mistakes of a list: the index of the item, and what is wrong with it.
pub(super) type ItemMistakes = Vec<(usize, String)>;

/// Reads the values of an axis.
pub(super) fn axis_values(axis: &Axis, items: &[&str]) -> Result<Vec<Value>, ItemMistakes> {
    if items.is_empty() {
        return Err(vec![(0, format!("an empty list; expected {}", axis.accepts()))]);
    }
    if items.len() > AXIS_VALUES_MAX {
        let what = format!("{} values; at most {AXIS_VALUES_MAX} make points", items.len());
        return Err(vec![(AXIS_VALUES_MAX, what)]);
    }
    distinct(items, |value| {
        axis.read(value).map_err(|_| {
            let words = axis.accepts();
            let suggestion = did_you_mean(value, words.split(", "));
            format!("not accepted; expected {words}{suggestion}")
        })
    })
}

/// Why a window cannot be cut into such intervals, if so.
pub(super) fn interval_fault(runtime: Duration, interval: Duration) -> Option<String> {
    let (runtime_text, text) = (length_text(runtime), length_text(interval));
    if interval > runtime {
        return Some(format!(
            "an interval of {text} is longer than the runtime of {runtime_text}; expected at \
             most {runtime_text}"
        ));
    }
    (runtime.as_nanos() / interval.as_nanos() > INTERVALS_MAX).then(|| {
        format!(
            "intervals of {text} cut the runtime of {runtime_text} into too many; expected at \
             most {INTERVALS_MAX}"
        )
    })
}

/// Why these numbers of blocks do not go together, if so.
pub(super) fn blocks_fault(blocks: u32, blocks_max: u32) -> Option<String> {
    (blocks > blocks_max).then(|| {
        format!("{blocks} blocks are more than max_blocks = {blocks_max}; expected at most that")
    })
}

/// Reads every item and refuses repetitions.
pub(super) fn distinct<T: PartialEq>(
    items: &[&str],
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, ItemMistakes> {
    let mut values = Vec::new();
    let mut mistakes = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match read(item) {
            Ok(value) if values.contains(&value) => {
                mistakes.push((at, "stands here twice; expected once".to_owned()));
            }
            Ok(value) => values.push(value),
            Err(what) => mistakes.push((at, what)),
        }
    }
    if mistakes.is_empty() { Ok(values) } else { Err(mistakes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_fit_into_the_window_and_stay_few() {
        let ms = Duration::from_millis;
        assert_eq!(interval_fault(ms(100), ms(100)), None);
        assert!(interval_fault(ms(99), ms(100)).is_some());
        assert_eq!(interval_fault(ms(600_000), ms(100)), None);
        assert!(interval_fault(ms(600_000), ms(50)).is_some());
    }
}
