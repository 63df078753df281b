//! A page of metrics: the text format of Prometheus, version 0.0.4.
//!
//! What the server, the load generator and the manager of a pool count is written by it; they know the names.
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{Display, Write};

/// A page as it grows.
///
/// ```
/// use pollux_http::MetricsPage;
///
/// let mut page = MetricsPage::new("app_");
/// page.family("requests_total", "counter", "Requests, by service");
/// page.line("requests_total", &[("service", &"ECHO")], 7);
/// let text = "# HELP app_requests_total Requests, by service\n# TYPE app_requests_total counter\n\
///             app_requests_total{service=\"ECHO\"} 7\n";
/// assert_eq!(page.text(), text);
/// ```
#[derive(Clone, Debug)]
pub struct MetricsPage {
    prefix: &'static str,
    text: String,
}

impl MetricsPage {
    /// The media type that a page is sent with.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// An empty page, whose names all begin with `prefix`.
    #[must_use]
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Begins a family of values: its kind (`counter`, `gauge`, `histogram`) and its help in one line, whose full stop
    /// is left out.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        let help = help.trim_end_matches('.');
        self.put(format_args!("# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n"));
    }

    /// A value of the family that was begun last, by its labels.
    pub fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.text.push_str(self.prefix);
        self.text.push_str(name);
        for (place, (label, of)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            self.put(format_args!("{before}{label}=\""));
            let begin = self.text.len();
            self.put(format_args!("{of}"));
            self.escape_from(begin);
            self.text.push('"');
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{after} {value}\n"));
    }

    /// A comment, as of a value that could not be read, with the reason.
    pub fn comment(&mut self, text: &str) {
        self.put(format_args!("# {text}\n"));
    }

    /// The page.
    #[must_use]
    pub fn text(self) -> String {
        self.text
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes everything");
    }

    /// The value of a label has no quote, backslash or new line as it is.
    fn escape_from(&mut self, begin: usize) {
        if self.text[begin..].contains(['\\', '"', '\n']) {
            let value = self.text.split_off(begin);
            for sign in value.chars() {
                match sign {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    sign => self.text.push(sign),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_beside_each_other_and_nothing_ends_them_early() {
        let mut page = MetricsPage::new("");
        page.family("a", "gauge", "Help.");
        page.line("a", &[], 1.5);
        page.line("a", &[("x", &"1"), ("y", &"a\"b\\c\nd"), ("z", &7)], -1);
        page.comment("b: n/a, there is none");
        let text = "# HELP a Help\n# TYPE a gauge\na 1.5\na{x=\"1\",y=\"a\\\"b\\\\c\\nd\",z=\"7\"} -1\n\
                    # b: n/a, there is none\n";
        assert_eq!(page.text(), text);
    }
}
