//! The subject of a certificate as text (RFC 4514): `CN=anna,O=Example,C=SE`, the most specific part first.
//!
//! The text is visible ASCII and spaces alone, and no value can pass for another part: it goes into heads and logs.

use std::fmt::Write;

/// Types that have a name (RFC 4514 3, and two that everybody writes), by their identifiers in DER.
const TYPES: [(&[u8], &str); 11] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

const OID: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const BMP: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The text of a name, in DER without the head of its outer sequence; none of what is not a name.
pub(crate) fn text(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let mut set = of_tag(&mut name, SET)?;
        let mut part = String::new();
        while !set.is_empty() {
            let mut pair = of_tag(&mut set, SEQUENCE)?;
            let kind = of_tag(&mut pair, OID)?;
            let whole = pair;
            let (tag, value) = element(&mut pair)?;
            if !pair.is_empty() {
                return None;
            }
            if !part.is_empty() {
                part.push('+');
            }
            match TYPES.iter().find(|(id, _)| *id == kind).zip(string(tag, value)) {
                Some(((_, name), value)) => {
                    part.push_str(name);
                    part.push('=');
                    escape(&mut part, &value);
                }
                None => {
                    dotted(&mut part, kind)?;
                    part.push_str("=#");
                    whole.iter().for_each(|byte| hex(&mut part, *byte));
                }
            }
        }
        parts.push(part);
    }
    parts.reverse();
    Some(parts.join(","))
}

/// The content of the element in front of `input`, which has this tag.
fn of_tag<'d>(input: &mut &'d [u8], expected: u8) -> Option<&'d [u8]> {
    let (tag, content) = element(input)?;
    (tag == expected).then_some(content)
}

/// Tag and content of the element in front of `input`.
fn element<'d>(input: &mut &'d [u8]) -> Option<(u8, &'d [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        // None says that its end is marked, which DER has not; four are more than a certificate has.
        if !(1..4).contains(&count) {
            return None;
        }
        let (bytes, behind) = rest.split_at_checked(count)?;
        len = bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(len)?;
    *input = behind;
    Some((tag, content))
}

/// The text of a value; none of one that is not text, or not what its tag says.
fn string(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        UTF8 => str::from_utf8(value).ok().map(str::to_owned),
        PRINTABLE | IA5 if value.is_ascii() => str::from_utf8(value).ok().map(str::to_owned),
        BMP if value.len().is_multiple_of(2) => {
            let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        _ => None,
    }
}

/// Writes a value so that it ends where it ends (RFC 4514 2.4).
fn escape(out: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' | b'=' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(char::from(byte)),
            byte => {
                out.push('\\');
                hex(out, byte);
            }
        }
    }
}

/// Writes an identifier in numbers with dots; none where it is cut, or has a number beyond all that there are.
fn dotted(out: &mut String, id: &[u8]) -> Option<()> {
    let mut number: u64 = 0;
    let mut is_first = true;
    if id.last().is_none_or(|last| *last >= 0x80) {
        return None;
    }
    for byte in id {
        number = number.checked_mul(128)? | u64::from(byte & 0x7f);
        if *byte >= 0x80 {
            continue;
        }
        if std::mem::take(&mut is_first) {
            let root = (number / 40).min(2);
            write!(out, "{root}.{}", number - 40 * root).ok()?;
        } else {
            write!(out, ".{number}").ok()?;
        }
        number = 0;
    }
    Some(())
}

fn hex(out: &mut String, byte: u8) {
    write!(out, "{byte:02x}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use webpki::EndEntityCert;

    use super::text;

    fn of(name: DistinguishedName) -> Option<String> {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.distinguished_name = name;
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("signed");
        let read = EndEntityCert::try_from(cert.der()).expect("a certificate");
        text(read.subject())
    }

    #[test]
    fn parts_stand_the_most_specific_first_and_no_value_passes_for_another_part() {
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, DnValue::PrintableString("SE".try_into().expect("it")));
        name.push(DnType::OrganizationName, "A, Inc.");
        name.push(DnType::CommonName, " anna,O=Admins\r\n\u{e9}\\ ");
        assert_eq!(
            of(name).as_deref(),
            Some("CN=\\ anna\\,O\\=Admins\\0d\\0a\\c3\\a9\\\\\\ ,O=A\\, Inc.,C=SE")
        );
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, "#1");
        name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 311]), "x");
        assert_eq!(of(name).as_deref(), Some("1.3.6.1.4.1.311=#0c0178,CN=\\#1"));
        assert_eq!(of(DistinguishedName::new()).as_deref(), Some(""));
    }

    #[test]
    fn what_is_not_a_name_has_no_text_however_it_is_cut() {
        let whole = [0x31, 9, 0x30, 7, 6, 3, 0x55, 4, 3, 0x0c, 0];
        assert_eq!(text(&whole).as_deref(), Some("CN="));
        for len in 1..whole.len() {
            assert_eq!(text(&whole[..len]), None, "{len}");
        }
        for (at, byte) in [(0, 0x30), (1, 0x80), (1, 0x84), (1, 0xff), (2, 0x31), (4, 5), (8, 0x83)]
        {
            let mut wrong = whole;
            wrong[at] = byte;
            assert_eq!(text(&wrong), None, "{at} {byte:x}");
        }
        // A byte that is not text, as text in DER.
        let whole = [0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 3, 0x0c, 1, 0xff];
        assert_eq!(text(&whole).as_deref(), Some("2.5.4.3=#0c01ff"));
    }
}
