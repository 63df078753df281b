//! GitHub-flavoured Markdown, for the pages of CI steps.

/// Text that stays text, on one line: it can't end a table or become a link.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '#' | '~' => {
                out.extend(['\\', character]);
            }
            _ if character.is_control() => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn labels_cannot_end_a_table_or_become_a_link() {
        assert_eq!(escape("a|b\n[x](y)<i>"), "a\\|b \\[x\\](y)&lt;i&gt;");
    }
}
