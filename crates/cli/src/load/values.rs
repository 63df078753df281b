//! Reads single values of `pollux load`: durations, weighted URLs, fields, bodies, addresses.
//!
//! The table of settings names these as its readers, so each answers with one line that says what is wrong
//! and what is expected. Only [`body`] reads a file; nothing is looked up in the network.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pollux_engine::{Address, ListenAddress, ListenError};
use pollux_load::parse_percent;
use pollux_settings::quantity;

/// Longest body that is sent: a request is kept in memory whole.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Source addresses at most: each is good for some 28,000 connections.
const SOURCES_MAX: u128 = 1024;

/// A URL and how often it is asked for in relation to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Weighted {
    pub(crate) url: String,
    pub(crate) weight: u32,
}

/// `URL`, or `WEIGHT@URL`.
pub(crate) fn weighted(text: &str) -> Result<Weighted, String> {
    let weighted = text
        .split_once('@')
        .and_then(|(weight, url)| quantity::number(weight).is_some().then_some((weight, url)));
    let Some((weight, url)) = weighted else {
        return Ok(Weighted { url: text.to_owned(), weight: 1 });
    };
    match quantity::whole_number(weight).map(u32::try_from) {
        Some(Ok(0)) => Err("weight 0 means never; leave the URL out".to_owned()),
        Some(Ok(weight)) => Ok(Weighted { url: url.to_owned(), weight }),
        Some(Err(_)) => Err(format!("weight {weight} is beyond {}", u32::MAX)),
        None => Err(format!("weight {weight} is not a whole number up to {}", u32::MAX)),
    }
}

/// `NAME: VALUE`, as a request carries it.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("no colon; write 'NAME: VALUE'")?;
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("\"{name}\" is not a field name; write 'NAME: VALUE'"));
    }
    let value = value.trim_matches([' ', '\t']);
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(format!("the value of {name} has control characters"));
    }
    if ["content-length", "transfer-encoding"].contains(&&*name.to_ascii_lowercase()) {
        return Err(format!("{name} follows from the body; give it with --body"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A method: any token, for servers know more than we do.
pub(crate) fn method(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(is_token) {
        Ok(text.to_owned())
    } else {
        Err("a method is one word, such as GET or POST".to_owned())
    }
}

/// The text itself, or what is in the file behind `@`.
pub(crate) fn body(text: &str) -> Result<Vec<u8>, String> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    read(Path::new(path)).map_err(|error| format!("{path}: {error}"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes);
    match read.map_err(|error| error.to_string())? as u64 {
        len if len > BODY_BYTES_MAX => Err(format!("longer than {BODY_BYTES_MAX} bytes")),
        _ => Ok(bytes),
    }
}

/// Name and password, or what is in the file behind `@`, as the field Authorization carries it
/// (RFC 7617).
pub(crate) fn basic(text: &str) -> Result<String, String> {
    let bytes = body(text)?;
    let said = if text.starts_with('@') { bytes.trim_ascii_end() } else { &bytes };
    // Neither is repeated in an error: a terminal or a log would keep it.
    if !said.contains(&b':') {
        return Err(
            "no colon between name and password; expected NAME:PASSWORD, or @FILE".to_owned()
        );
    }
    if said.iter().any(u8::is_ascii_control) {
        return Err("name or password has control characters".to_owned());
    }
    Ok(format!("Basic {}", STANDARD.encode(said)))
}

/// Where to connect to: `HOST:PORT`.
pub(crate) fn address_of(text: &str) -> Result<Address, String> {
    match text.parse() {
        Ok(Address::Known(ListenAddress::Unix(_))) => {
            Err("a unix socket is given with --unix".to_owned())
        }
        Ok(address) => Ok(address),
        Err(ListenError::Address { why, .. }) => {
            Err(format!("{why}; expected HOST:PORT such as 127.0.0.1:8443"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A percentile such as `99.9`, as a quantile from 0 to 1.
pub(crate) fn quantile(text: &str) -> Result<f64, String> {
    let text = text.trim();
    parse_percent(text.strip_prefix('p').unwrap_or(text))
        .ok_or_else(|| format!("\"{text}\" is not above 0 and below 100; expected such as 99.9"))
}

/// Quantiles in the order of a table, each once.
pub(crate) fn rising(mut quantiles: Vec<f64>) -> Vec<f64> {
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    quantiles
}

/// An address, or all from one to another: `127.0.0.2-127.0.0.9`.
pub(crate) fn sources(text: &str) -> Result<Vec<IpAddr>, String> {
    let read = |part: &str| {
        let right = "expected addresses such as 127.0.0.2,127.0.0.3 or 127.0.0.2-127.0.0.9";
        part.trim().parse().map_err(|_| format!("\"{part}\" is not an IP address; {right}"))
    };
    let Some((first, last)) = text.split_once('-') else { return Ok(vec![read(text)?]) };
    let (first, last): (IpAddr, IpAddr) = (read(first)?, read(last)?);
    if first.is_ipv4() != last.is_ipv4() || last < first {
        return Err(format!("{last} does not come after {first}"));
    }
    let from = number(first);
    let to = number(last);
    if to - from >= SOURCES_MAX {
        return Err(format!("these are more than {SOURCES_MAX} addresses"));
    }
    Ok((from..=to).map(|each| address(each, first.is_ipv4())).collect())
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn address(number: u128, is_v4: bool) -> IpAddr {
    if is_v4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
}

/// What names of fields and methods are made of (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// An address with its port, to listen on.
///
/// # Errors
/// It is none.
pub(crate) fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("\"{text}\"; expected an address such as 127.0.0.1:9100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_stands_before_its_url() {
        let heavy = weighted("3@http://h/a").expect("weighted");
        assert_eq!((heavy.weight, &*heavy.url), (3, "http://h/a"));
        // Neither a path nor a user name with an at sign is a weight.
        for url in ["http://h/@2", "http://2@h/", "@http://h/"] {
            assert_eq!(weighted(url).expect(url), Weighted { url: url.to_owned(), weight: 1 });
        }
    }

    #[test]
    fn fields_bodies_and_percentiles_are_what_they_say() {
        assert_eq!(field("Accept:  */* "), Ok(("Accept".to_owned(), "*/*".to_owned())));
        assert_eq!(body("a=b"), Ok(b"a=b".to_vec()));
        let read: Result<Vec<f64>, String> =
            ["99.9", "p50", "99.9"].map(quantile).into_iter().collect();
        assert_eq!(read.map(rising), Ok(vec![0.5, 0.999]));
    }

    #[test]
    fn name_and_password_become_a_field() {
        // The example of RFC 7617, section 2.
        let field = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned();
        assert_eq!(basic("Aladdin:open sesame"), Ok(field.clone()));
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, b"Aladdin:open sesame\n").expect("written");
        assert_eq!(basic(&format!("@{}", file.path().display())), Ok(field));
        assert!(!basic("secret").expect_err("no colon").contains("secret"));
    }

    #[test]
    fn sources_are_single_or_in_ranges() {
        let some = sources("127.0.0.2-127.0.0.4").expect("a range");
        let words: Vec<String> = some.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
        assert_eq!(sources("::1").expect("one").len(), 1);
    }

    #[test]
    fn mistakes_in_values_are_reported() {
        for (message, why) in [
            (weighted("0@http://h/").err(), "never"),
            (weighted("99999999999@http://h/").err(), "beyond"),
            (field("Accept").err(), "colon"),
            (field("A B: c").err(), "field name"),
            (field(": c").err(), "field name"),
            (field("A: b\r\nC: d").err(), "control"),
            (field("content-length: 5").err(), "--body"),
            (method("GE T").err(), "word"),
            (quantile("0").err(), "99.9"),
            (quantile("100").err(), "99.9"),
            (quantile("-1").err(), "99.9"),
            (quantile("many").err(), "99.9"),
            (quantile("NaN").err(), "99.9"),
            (body("@no/such/file").err(), "no/such/file"),
            (basic("secret").err(), "colon"),
            (basic("a:b\nc").err(), "control"),
            (address_of("unix:/run/s").err(), "--unix"),
            (address_of("127.0.0.1").err(), "no port"),
            (sources("here").err(), "not an IP address"),
            (sources("127.0.0.9-127.0.0.2").err(), "after"),
            (sources("127.0.0.1-::1").err(), "after"),
            (sources("10.0.0.0-10.255.255.255").err(), "more than"),
        ] {
            assert!(
                message.as_ref().is_some_and(|message| message.contains(why)),
                "{why}: {message:?}"
            );
        }
    }
}
