//! Option strings as argument vectors, and `${NAME}` in values.
//!
//! Pure text; the reader of configurations calls it. The environment is handed in.

/// Splits at blanks. Text in single or double quotes is one word without them; outside of
/// single quotes a backslash takes the next character as it is.
///
/// # Errors
/// Which quote is not closed.
pub(super) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let Some(next) = letters.next() else {
                    return Err("a backslash stands at the end".to_owned());
                };
                word.get_or_insert_default().push(next);
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// Replaces each `${NAME}` by what `lookup` knows of it. `$` without a brace stays as it is.
///
/// # Errors
/// Which name is unknown, or that a brace is not closed.
pub(super) fn substitute(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, behind) = (&rest[..start], &rest[start + 2..]);
        let Some(end) = behind.find('}') else {
            return Err(format!("\"{}\" has no closing brace", &rest[start..]));
        };
        let name = &behind[..end];
        let Some(value) = lookup(name) else {
            return Err(format!("${{{name}}} is not set in the environment"));
        };
        done.push_str(before);
        done.push_str(&value);
        rest = &behind[end + 1..];
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_and_vanish() {
        let words = |text| split(text).expect("whole");
        assert_eq!(words("-e /log/A -r"), ["-e", "/log/A", "-r"]);
        assert_eq!(words("  -a 'b c'\"d\\\" e\" f\\ g '' "), ["-a", "b cd\" e", "f g", ""]);
        assert_eq!(words(""), [""; 0]);
        assert!(split("-e 'x").is_err_and(|why| why.contains("quote '")));
        assert!(split("x\\").is_err());
    }

    #[test]
    fn names_are_replaced_or_told() {
        let lookup = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(substitute("a ${HOME}/${HOME} $x", &lookup), Ok("a /h//h $x".to_owned()));
        assert!(substitute("${NONE}", &lookup).is_err_and(|why| why.contains("${NONE}")));
        assert!(substitute("${HOME", &lookup).is_err());
    }
}
