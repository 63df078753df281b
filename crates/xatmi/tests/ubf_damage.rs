//! Regions that somebody damaged: each kind of damage is told by its own reason, and what is not
//! damaged shows nothing of what stood in the memory before.

use pollux_xatmi::ubf::{
    FieldId, FieldType, HEADER_BYTES, NESTING_MAX, Ubf, UbfError, UbfMut, UbfRef, Value,
};

const ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);
const AMTAVL: FieldId = FieldId::new(FieldType::Double, 1003);
const INNER: FieldId = FieldId::new(FieldType::Ubf, 7);

/// Where the first field of [`bank`], a double, has its id and its length, and the second.
const FIRST: usize = HEADER_BYTES;
const SECOND: usize = FIRST + 16;

fn bank() -> Vec<u8> {
    let mut fields = Ubf::new();
    fields.add(AMTAVL, 12.5).expect("added");
    fields.add(ACCNUM, "ACC00000000001").expect("added");
    fields.used_bytes().to_vec()
}

fn damage(region: &[u8]) -> &'static str {
    match UbfRef::check(region) {
        Err(UbfError::NotFielded { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// The region with some numbers in other places.
fn edited(region: &[u8], numbers: &[(usize, u32)]) -> Vec<u8> {
    let mut region = region.to_vec();
    for &(at, number) in numbers {
        region[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    region
}

#[test]
fn a_header_that_contradicts_itself_is_refused_on_every_opening() {
    let bank = bank();
    let len = u32::try_from(bank.len()).expect("short");
    for numbers in [
        &[(8, len + 4)][..],
        &[(8, len - 4)],
        &[(8, 8)],
        &[(8, u32::MAX - 7)],
        &[(4, len - 8)],
        &[(4, u32::MAX)],
        &[(4, (1 << 30) + 8)],
        &[(12, 6)],
        &[(12, u32::MAX)],
    ] {
        let mut region = edited(&bank, numbers);
        assert_eq!(damage(&region), "its header contradicts itself", "{numbers:?}");
        assert!(UbfRef::open(&region).is_err() && UbfMut::open(&mut region).is_err());
        assert!(UbfMut::resized(&mut region).is_err() && Ubf::from_bytes(&region).is_err());
    }
    assert_eq!(damage(&edited(&bank, &[(0, 7)])), "it has not been initialised");
}

#[test]
fn a_damaged_field_is_found_by_the_check() {
    let bank = bank();
    let of_type = |code: u32| (code << 25) | 1;
    for (numbers, reason) in [
        (&[(FIRST + 4, u32::MAX)][..], "a field goes beyond its end"),
        (&[(FIRST + 4, 100)], "a field goes beyond its end"),
        (&[(SECOND + 4, 17)], "a field goes beyond its end"),
        (&[(FIRST + 4, 7)], "a value is not of its type"),
        (&[(FIRST, 0)], "a field's id is wrong"),
        (&[(FIRST, of_type(7))], "a field's id is wrong"),
        (&[(FIRST, of_type(8))], "a field's id is wrong"),
        (&[(SECOND, u32::MAX)], "its fields are out of order"),
        (&[(SECOND, of_type(0))], "its fields are out of order"),
        (&[(SECOND, of_type(11))], "it holds a view"),
        (&[(SECOND, of_type(10))], "it is shorter than a header"),
        (&[(SECOND + 4, 14)], "a value is not of its type"),
        (&[(SECOND + 4, 16)], "a string has a NUL in it"),
        (&[(SECOND + 4, 0)], "a value is not of its type"),
        (&[(12, 1)], "its number of fields is wrong"),
        (&[(12, 3)], "its number of fields is wrong"),
    ] {
        let region = edited(&bank, numbers);
        assert_eq!(damage(&region), reason, "{numbers:?}");
        assert!(Ubf::from_bytes(&region).is_err());
    }
    assert!(UbfRef::check(&bank).is_ok());
}

#[test]
fn a_region_that_was_cut_is_neither_read_nor_written() {
    let bank = bank();
    for len in HEADER_BYTES..bank.len() {
        assert_eq!(damage(&bank[..len]), "it was cut short");
    }
    let mut fields = Ubf::new();
    fields.add(AMTAVL, 1.0).expect("added");
    // All that is used is there, and less than the header lets a writer believe.
    let mut sent = fields.used_bytes().to_vec();
    assert!(UbfRef::check(&sent).is_ok());
    assert_eq!(UbfMut::open(&mut sent).expect_err("too short to write").number(), 3);
    assert!(UbfMut::adopt(&mut sent).is_ok() && UbfMut::open(&mut sent).is_ok());
}

#[test]
fn inner_buffers_are_checked_too() {
    let inner = bank();
    let mut fields = Ubf::new();
    fields.add(INNER, UbfRef::check(&inner).expect("sound")).expect("added");
    let outer = fields.used_bytes();
    let at = HEADER_BYTES + 8;
    assert_eq!(damage(&edited(outer, &[(at + 12, 1)])), "its number of fields is wrong");
    let longer = [(at + 4, 64)];
    assert_eq!(
        damage(&edited(outer, &longer)),
        "an inner buffer has another length than its field"
    );

    for _ in 1..NESTING_MAX {
        let mut next = Ubf::new();
        next.add(INNER, fields.fields()).expect("not too deep");
        fields = next;
    }
    let deepest = Ubf::from_bytes(fields.used_bytes()).expect("sound");
    assert_eq!(damage(&within(deepest.used_bytes())), "too many buffers are within one another");
}

/// A buffer with this one in it, as no writer here makes it.
fn within(inner: &[u8]) -> Vec<u8> {
    let len = |bytes: usize| u32::try_from(bytes).expect("short");
    let id = u32::try_from(INNER.raw()).expect("positive");
    let region = [Ubf::with_size(0).used_bytes(), &[0; 8], inner].concat();
    let bytes = len(region.len());
    let numbers =
        [(4, bytes), (8, bytes), (12, 1), (HEADER_BYTES, id), (HEADER_BYTES + 4, len(inner.len()))];
    edited(&region, &numbers)
}

#[test]
fn nothing_of_the_memory_before_is_sent() {
    let mut memory = [0x5a; 128];
    let mut fields = UbfMut::init(&mut memory).expect("room");
    fields.add(FieldId::new(FieldType::Carray, 1), &[1u8][..]).expect("room");
    fields.change(FieldId::new(FieldType::Char, 2), 1, Value::Char(1)).expect("room");
    fields.add(ACCNUM, "abc").expect("room");
    fields.change(ACCNUM, 0, "a").expect("room");
    let sent = fields.fields().used_bytes();
    let has = |byte: u8| sent[HEADER_BYTES..].contains(&byte);
    assert!(!has(0x5a) && !has(b'b') && has(b'a'), "{sent:x?}");
}
