//! The first line of a request for code that does not parse it again: the log and refusals.
//!
//! The sessions call it with bytes that may be anything; it judges none of them.

/// Whether an answer to these bytes, sound or not, must come without a body.
pub(crate) fn is_head(request: &[u8]) -> bool {
    request.trim_ascii_start().starts_with(b"HEAD ")
}

/// Whether nothing but line ends has come.
pub(crate) fn is_blank(input: &[u8]) -> bool {
    input.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Whether this looks like the first record of TLS, a handshake.
pub(crate) fn is_tls(input: &[u8]) -> bool {
    input.starts_with(&[0x16, 0x03])
}

/// Method, target and whether it is HTTP/1.0, of a head that was parsed before; else nothing.
pub(crate) fn request_line(head: &[u8]) -> (&str, &str, bool) {
    let line = head.trim_ascii_start().split(|byte| *byte == b'\r').next().unwrap_or(b"");
    let mut words = str::from_utf8(line).unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    (method, target, words.next() == Some("HTTP/1.0"))
}

/// The value of the first field of that name, of a head that was parsed before; else nothing.
pub(crate) fn field<'h>(head: &'h [u8], name: &str) -> &'h str {
    let lines = head.split(|byte| *byte == b'\n');
    let value = lines.skip(1).find_map(|line| {
        let (own, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        own.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
    });
    value.and_then(|value| str::from_utf8(value).ok()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_start_a_head_request_are_one() {
        for (request, is_one) in [
            ("HEAD /", true),
            ("\r\nHEAD ", true),
            ("HEAD", false),
            ("HEADS /", false),
            ("", false),
        ] {
            assert_eq!(is_head(request.as_bytes()), is_one, "{request}");
        }
    }

    #[test]
    fn line_ends_alone_are_blank() {
        assert!(is_blank(b"\r\n\r") && is_blank(b""));
        assert!(!is_blank(b"\r\nG") && !is_blank(b" "));
    }

    #[test]
    fn the_line_is_taken_apart_whatever_it_is() {
        let line = b"\r\nGET /a?b HTTP/1.0\r\nHost: c\r\n\r\n";
        assert_eq!(request_line(line), ("GET", "/a?b", true));
        assert_eq!(request_line(b"PUT / HTTP/1.1\r\n"), ("PUT", "/", false));
        assert_eq!(request_line(b"\xff / HTTP/1.0\r\n"), ("", "", false));
        assert_eq!(request_line(b""), ("", "", false));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name_in_any_case() {
        let head =
            b"GET / HTTP/1.1\r\nX-User-Agent: a\r\nuser-agent:  b c \r\nUser-Agent: d\r\n\r\n";
        assert_eq!(field(head, "user-agent"), "b c");
        assert_eq!((field(head, "referer"), field(b"", "a"), field(head, "user")), ("", "", ""));
        assert_eq!(field(b"GET / HTTP/1.1\r\nA: \xff\r\n\r\n", "a"), "");
    }
}
