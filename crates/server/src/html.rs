//! Text in pages of HTML, of all that make them: listings of folders, the page of a server's figures.

/// Text as it may stand in an element and in a quoted attribute.
///
/// Control characters become U+FFFD, line ends too: who shows lines escapes each.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_element_or_its_attribute() {
        assert_eq!(escaped("<a b='c'>&\"\n"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
    }
}
