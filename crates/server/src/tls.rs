//! What a server of HTTP says in TLS that has none below it: to a client that speaks plain HTTP to it.
//!
//! TLS itself, below a session of either kind, is `pollux-tls`.

use pollux_http::Method;
use pollux_tls::Opening;
pub use pollux_tls::{Certificate, Keys, TlsError, Trust};

/// What a client gets that speaks plain HTTP to a server with a certificate: in the words of nginx, which programs know
/// (`pollux load` among them).
const PLAIN_HTTP: &str =
    "400 Bad Request: the plain HTTP request was sent to HTTPS port; use https://\n";
/// What a record of TLS has in front: so much is needed for the verdict that it is none.
const RECORD_HEAD_BYTES: usize = 5;

/// What a client of HTTP begins its connection with. A record of TLS begins with 20 to 24, never with a letter: a token
/// and a space are a method, however they were cut on their way.
pub(crate) fn opening(start: &[u8]) -> Opening {
    if !start.first().is_none_or(u8::is_ascii_alphabetic) {
        return Opening::Tls;
    }
    let window = &start[..start.len().min(Method::BYTES_MAX + 1)];
    let Some(end) = window.iter().position(|byte| *byte == b' ') else {
        let is_cut = window.is_empty() || Method::is_name(window);
        return if is_cut { Opening::Unknown } else { Opening::Tls };
    };
    let method = &window[..end];
    if !Method::is_name(method) || method == b"PROXY" {
        Opening::Tls
    } else if start.len() < RECORD_HEAD_BYTES {
        Opening::Unknown
    } else {
        Opening::Plain(page_for_plain_http(method == b"HEAD").into_bytes())
    }
}

/// What a client gets that speaks plain HTTP: all of it, or for HEAD no more than the head.
fn page_for_plain_http(is_head: bool) -> String {
    let len = PLAIN_HTTP.len();
    let body = if is_head { "" } else { PLAIN_HTTP };
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_plain_http_has_its_length_and_none_for_head() {
        let page = page_for_plain_http(false);
        let (head, body) = page.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert_eq!(page_for_plain_http(true), format!("{head}\r\n\r\n"));
    }

    #[test]
    fn a_request_is_one_however_it_is_cut_and_no_record_is_taken_for_one() {
        for (request, is_head) in [
            ("GET / HTTP/1.1\r\n", false),
            ("HEAD / HTTP/1.1\r\n", true),
            ("OPTIONS * HTTP/1.1\r\n", false),
            ("TRACE / HTTP/1.1\r\n", false),
            ("CONNECT a:1 HTTP/1.1\r\n", false),
            ("GET http://a/ HTTP/1.1\r\n", false),
            ("M-SEARCH * HTTP/1.1\r\n", false),
            ("A / HTTP/1.1\r\n", false),
        ] {
            let verdicts = (0..=request.len()).map(|len| opening(&request.as_bytes()[..len]));
            let known: Vec<_> = verdicts.skip_while(|it| *it == Opening::Unknown).collect();
            assert!(!known.is_empty(), "{request}");
            let page = Opening::Plain(page_for_plain_http(is_head).into_bytes());
            assert!(known.iter().all(|it| *it == page), "{request}: {known:?}");
        }
        let endless = [b'A'; Method::BYTES_MAX + 1];
        for other in [
            &b"\x16"[..],
            b"\x16\x03\x01",
            b"\x80GET /",
            b"GE\x00",
            b"\r\n",
            b"PROXY TCP4 ",
            &endless,
        ] {
            assert_eq!(opening(other), Opening::Tls, "{}", other.escape_ascii());
        }
    }
}
