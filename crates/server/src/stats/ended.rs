//! Counters of workers that have ended, or are about to: carried over to the one that runs, so that
//! a reload or a crash makes no counter go back.
//!
//! Read from the pages that they last made and summed up over their loops; on the page of the running
//! worker they stand behind its own loops as `loop="ended"`. Gauges are not carried: what has ended
//! holds nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The label of a loop, and what stands for those that have ended.
const LOOP: &str = "loop=\"";
const ENDED: &str = "loop=\"ended\"";

/// Sums of counters, by family and by name with labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    families: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Ended {
    /// What a page of metrics says, in the text format of Prometheus. Lines of another form are
    /// passed over.
    #[must_use]
    pub fn of_page(page: &str) -> Self {
        let mut ended = Self::default();
        ended.add_page(page);
        ended
    }

    /// Adds what a page says.
    pub fn add_page(&mut self, page: &str) {
        let mut family = None;
        for line in page.lines() {
            if let Some(message) = line.strip_prefix("# TYPE ") {
                let (name, kind) = message.split_once(' ').unwrap_or((message, ""));
                family = matches!(kind, "counter" | "histogram").then(|| name.to_owned());
            }
            let Some(family) = family.as_ref().filter(|_| !line.starts_with('#')) else { continue };
            let Some((key, value)) = line.rsplit_once(' ') else { continue };
            let Some(value) = value.parse().ok().filter(|value: &f64| *value != 0.0) else {
                continue;
            };
            let sums = self.families.entry(family.clone()).or_default();
            *sums.entry(without_loop(key)).or_default() += value;
        }
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// The page of a running worker, with these behind its own.
    #[must_use]
    pub fn added_to(&self, page: String) -> String {
        if self.is_empty() {
            return page;
        }
        let mut text = String::with_capacity(page.len() * 2);
        let mut family = "";
        for line in page.lines() {
            if let Some(message) = line.strip_prefix("# HELP ") {
                self.write(family, &mut text);
                family = message.split(' ').next().unwrap_or_default();
            }
            writeln!(text, "{line}").expect("a string");
        }
        self.write(family, &mut text);
        text
    }

    /// As a page of its own that [`Ended::of_page`] reads.
    #[must_use]
    pub fn page(&self) -> String {
        let mut text = String::new();
        for family in self.families.keys() {
            writeln!(text, "# TYPE {family} counter").expect("a string");
            self.write(family, &mut text);
        }
        text
    }

    fn write(&self, family: &str, text: &mut String) {
        for (key, value) in self.families.get(family).into_iter().flatten() {
            writeln!(text, "{key} {value}").expect("a string");
        }
    }
}

/// The name with labels, whose loop is the one that has ended.
fn without_loop(key: &str) -> String {
    match key.split_once(LOOP) {
        None => key.to_owned(),
        Some((before, rest)) => {
            let after = rest.split_once('"').map_or("", |(_, after)| after);
            format!("{before}{ENDED}{after}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP a_total Things
# TYPE a_total counter
a_total{loop=\"0\"} 3
a_total{loop=\"1\"} 4
# HELP open Now
# TYPE open gauge
open{loop=\"0\"} 9
# HELP b_total Others
# TYPE b_total counter
b_total{loop=\"0\",kind=\"x\"} 0
b_total{loop=\"0\",kind=\"y\"} 2
# n/a: c
# HELP t_seconds Times
# TYPE t_seconds histogram
t_seconds_bucket{loop=\"0\",le=\"+Inf\"} 5
t_seconds_sum{loop=\"0\"} 0.5
";

    #[test]
    fn counters_of_what_has_ended_add_up_and_gauges_do_not() {
        let mut ended = Ended::of_page(PAGE);
        ended.add_page(PAGE);
        let page = ended.added_to(PAGE.to_owned());
        for line in [
            "a_total{loop=\"1\"} 4\na_total{loop=\"ended\"} 14\n# HELP open",
            "open{loop=\"0\"} 9\n# HELP b_total",
            "b_total{loop=\"ended\",kind=\"y\"} 4\n",
            "t_seconds_bucket{loop=\"ended\",le=\"+Inf\"} 10\n",
            "t_seconds_sum{loop=\"ended\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}\nis not in\n{page}");
        }
        assert!(!page.contains("kind=\"x\"} 0\nb_total{loop=\"ended\",kind=\"x\""), "{page}");
        // What was carried is carried on with the page that has it.
        assert_eq!(Ended::of_page(&ended.page()), ended);
        let once = Ended::of_page(PAGE);
        assert_eq!(Ended::of_page(&once.added_to(PAGE.to_owned())), ended);
        assert_eq!(Ended::default().added_to(PAGE.to_owned()), PAGE);
    }
}
