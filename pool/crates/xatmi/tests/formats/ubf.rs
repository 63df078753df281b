//! What programs rely on: the answers that the C interface of other systems gives, by their `Berror`, and
//! damaged regions, each refused with its reason.

use std::cmp::Ordering;

use pollux_xatmi::ubf::{
    FieldId, FieldType, HEADER_BYTES, LAST, NESTING_MAX, Region, SIZE_MAX, Scratch, Ubf, UbfError,
    UbfMut, UbfRef, Value, describe, region_size,
};

const ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);
const ACCCUR: FieldId = FieldId::new(FieldType::String, 1002);
const AMTAVL: FieldId = FieldId::new(FieldType::Double, 1003);
const COUNT: FieldId = FieldId::new(FieldType::Long, 1);
const INNER: FieldId = FieldId::new(FieldType::Ubf, 7);

/// A region as `tpalloc("UBF", 0, 1024)` gives it.
fn region(size: usize) -> Region {
    let mut region = Region::zeroed(size);
    UbfMut::init(region.bytes_mut()).expect("room for a header");
    region
}

fn number<T>(result: Result<T, UbfError>) -> i32 {
    result.err().map_or(0, |error| error.number())
}

#[test]
fn memory_that_holds_no_fields_is_refused_with_3() {
    for len in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, 1024] {
        for byte in [0, 0x20, 0xff] {
            let mut memory = vec![byte; len];
            assert_eq!(number(UbfRef::open(&memory)), 3);
            assert_eq!(number(UbfRef::check(&memory)), 3);
            assert_eq!(number(region_size(&memory)), 3);
            assert_eq!(number(UbfMut::open(&mut memory)), 3);
            assert_eq!(number(UbfMut::adopt(&mut memory)), 3);
            assert_eq!(number(UbfMut::resized(&mut memory)), 3);
            assert_eq!(number(Ubf::from_bytes(&memory)), 3);
        }
    }
}

#[test]
fn a_field_id_of_0_is_refused_with_6() {
    assert_eq!(number(FieldId::from_raw(0)), 6);
}

#[test]
fn what_is_missing_is_5_and_an_occurrence_below_minus_one_is_14() {
    let mut fields = Ubf::new();
    assert_eq!(number(fields.get(ACCNUM, 0)), 5);
    fields.add(ACCNUM, "ACC00000000001").expect("added");
    assert_eq!(number(fields.get(ACCNUM, 1)), 5);
    assert_eq!(number(fields.get(ACCCUR, LAST)), 5);
    assert_eq!(number(fields.get(ACCNUM, -2)), 14);
    assert_eq!(number(fields.change(ACCNUM, -2, "x")), 14);
    assert_eq!(number(fields.delete(ACCNUM, -2)), 14);
    assert_eq!(number(fields.delete(ACCNUM, 1)), 5);
    assert_eq!(number(fields.growing(|fields| fields.delete_all(ACCCUR))), 5);
}

#[test]
fn reading_needs_room_for_the_nul() {
    let mut fields = Ubf::new();
    fields.add(ACCNUM, "ACC00000000001").expect("added");
    fields.add(ACCCUR, "USD").expect("added");
    let mut memory = [0xaa; 32];
    for room in [0, 4, 14] {
        let refused = fields.fields().copy_to(ACCNUM, 0, &mut memory[..room]);
        assert_eq!(refused, Err(UbfError::NoSpace { needed: 15, room }));
        assert_eq!(memory, [0xaa; 32], "nothing was written");
    }
    assert_eq!(fields.fields().copy_to(ACCNUM, 0, &mut memory[..15]), Ok(15));
    assert_eq!(&memory[..16], b"ACC00000000001\0\xaa");
    assert_eq!(fields.fields().copy_to(ACCCUR, 0, &mut memory[..4]), Ok(4));
    assert_eq!(fields.fields().find(ACCCUR, 0), Ok(&b"USD\0"[..]));
    assert_eq!(fields.fields().len_of(ACCNUM, LAST), Ok(15));
}

#[test]
fn changing_fills_gaps_appends_and_deleting_takes_back() {
    let mut fields = Ubf::new();
    fields.add(ACCNUM, "one").expect("added");
    fields.change(ACCNUM, 3, "four").expect("changed");
    assert_eq!(fields.fields().occurrences(ACCNUM), Ok(4));
    let texts: Vec<_> =
        (0..4).map(|occ| fields.fields().bytes(ACCNUM, occ).expect("there")).collect();
    assert_eq!(texts, [&b"one"[..], b"", b"", b"four"]);
    fields.change(ACCNUM, LAST, "five").expect("appended");
    assert_eq!(fields.fields().occurrences(ACCNUM), Ok(5));
    assert_eq!(fields.get(ACCNUM, LAST), Ok(Value::from("five")));
    fields.delete(ACCNUM, 1).expect("there");
    assert_eq!(fields.fields().occurrences(ACCNUM), Ok(4));
    assert_eq!(fields.get(ACCNUM, 2), Ok(Value::from("four")));
    fields.delete(ACCNUM, LAST).expect("there");
    assert_eq!(fields.get(ACCNUM, LAST), Ok(Value::from("four")));
    assert_eq!((fields.fields().count(), fields.fields().occurrences(AMTAVL)), (3, Ok(0)));
}

#[test]
fn what_does_not_fit_is_4_and_fits_after_the_region_has_grown() {
    let mut small = region(1024);
    let long = "x".repeat(2000);
    let mut fields = UbfMut::open(small.bytes_mut()).expect("sound");
    assert_eq!((fields.fields().size(), fields.fields().used()), (1024, HEADER_BYTES));
    assert_eq!(fields.fields().unused(), 1024 - HEADER_BYTES);
    fields.add(ACCCUR, "USD").expect("added");
    let before = fields.fields().used_bytes().to_vec();
    let Err(UbfError::NoSpace { needed, room: 1024 }) = fields.add(ACCNUM, long.as_str()) else {
        panic!("2,000 bytes do not fit");
    };
    assert_eq!(number(fields.change(ACCCUR, 0, long.as_str())), 4);
    assert_eq!(number(fields.change(ACCCUR, i32::MAX, "x")), 4);
    assert_eq!(fields.fields().used_bytes(), before, "what was refused changed nothing");

    for (size, refused) in [(needed - 1, 4), (needed, 0)] {
        let mut larger = small.resized(size);
        assert_eq!(region_size(larger.bytes()), Ok(1024));
        let mut fields = UbfMut::resized(larger.bytes_mut()).expect("larger");
        assert_eq!(number(fields.add(ACCNUM, long.as_str())), refused, "{size} bytes");
        assert_eq!(region_size(larger.bytes()), Ok(size));
    }
    assert_eq!(number(UbfMut::resized(small.resized(24).bytes_mut())), 4);
}

#[test]
fn values_of_another_type_are_refused() {
    let mut fields = Ubf::new();
    assert_eq!(number(fields.add(ACCNUM, 1.0)), 7);
    assert_eq!(number(fields.add(ACCNUM, "a\0b")), 14);
    let view = FieldId::new(FieldType::View, 1);
    assert_eq!(number(fields.add(view, "x")), 7);
    let short = Value::from_raw(FieldType::View, &[0; 39]);
    assert_eq!(number(short), 14);
    assert_eq!(number(fields.add_as(view, "x")), 22);
    assert_eq!(number(fields.get(view, 0)), 5);
    let mut scratch = Scratch::new();
    fields.add(COUNT, 7i64).expect("added");
    let refused = fields.fields().get_as(COUNT, 0, FieldType::Ubf, &mut scratch);
    assert_eq!(number(refused), 22);
    assert_eq!(number(fields.fields().bytes(COUNT, 0)), 22);
}

#[test]
fn conversions_happen_on_the_way_in_and_out() {
    let mut fields = Ubf::new();
    fields.add_as(AMTAVL, " 12.50 EUR").expect("a number is in front");
    fields.change_as(AMTAVL, 1, 7i64).expect("a number");
    fields.add_as(ACCNUM, 42i16).expect("as text");
    assert_eq!(fields.get(AMTAVL, 0), Ok(Value::Double(12.5)));
    assert_eq!(fields.fields().long(AMTAVL, 0), Ok(12));
    assert_eq!(fields.fields().double(ACCNUM, 0), Ok(42.0));
    let mut scratch = Scratch::new();
    let text = fields.fields().get_as(AMTAVL, LAST, FieldType::String, &mut scratch);
    assert_eq!(text, Ok(Value::from("7.000000")));
    let mut memory = [0xaa; 9];
    assert_eq!(
        text.expect("converted").write_raw(&mut memory[..8]),
        Err(UbfError::NoSpace { needed: 9, room: 8 })
    );
    assert_eq!(text.expect("converted").write_raw(&mut memory), Ok(9));
    assert_eq!(&memory, b"7.000000\0");
}

#[test]
fn iteration_goes_by_id_and_occurrence_and_starts_anywhere() {
    let mut fields = Ubf::new();
    for (id, value) in [(ACCCUR, "a"), (ACCNUM, "b"), (ACCCUR, "c")] {
        fields.add(id, value).expect("added");
    }
    fields.add(COUNT, 1i64).expect("added");
    let expected = [(COUNT, 0), (ACCNUM, 0), (ACCCUR, 0), (ACCCUR, 1)];
    let all: Vec<_> = fields.iter().map(|field| (field.id, field.occurrence)).collect();
    assert_eq!(all, expected);
    let mut stepped = Vec::new();
    let mut after = None;
    while let Some(field) = fields.fields().next(after).expect("sound") {
        after = Some((field.id, field.occurrence));
        stepped.extend(after);
    }
    assert_eq!(stepped, expected);
    let next =
        |id, occurrence| fields.fields().next(Some((id, occurrence))).map(|f| f.map(|f| f.id));
    assert_eq!(next(AMTAVL, 0), Ok(Some(ACCNUM)), "the field to start from need not exist");
    assert_eq!(next(ACCNUM, 9), Ok(Some(ACCCUR)));
    assert_eq!(next(ACCCUR, 1), Ok(None));
    assert_eq!(number(next(ACCCUR, -1)), 14);
    assert_eq!(fields.fields().find_occurrence(ACCCUR, "c".into()), Ok(1));
    assert_eq!(number(fields.fields().find_occurrence(ACCCUR, "b".into())), 5);
    assert_eq!(number(fields.fields().find_occurrence(ACCCUR, Value::Long(1))), 7);
    assert!(fields.fields().is_present(ACCCUR, LAST) && !fields.fields().is_present(ACCCUR, 2));
}

#[test]
fn buffers_stand_within_buffers_down_to_a_limit() {
    let mut fields = Ubf::new();
    fields.add(ACCNUM, "innermost").expect("added");
    for depth in 1..=NESTING_MAX {
        let mut outer = Ubf::new();
        outer.add(INNER, fields.fields()).unwrap_or_else(|error| panic!("{depth}: {error}"));
        let Ok(Value::Ubf(inner)) = outer.get(INNER, 0) else { panic!("a buffer") };
        assert_eq!((inner, inner.size()), (fields.fields(), inner.used()));
        fields = outer;
    }
    assert!(UbfRef::check(fields.used_bytes()).is_ok());
    assert_eq!(number(Ubf::new().add(INNER, fields.fields())), 14);
    let mut gap = Ubf::new();
    gap.change(INNER, 1, UbfRef::EMPTY).expect("a gap of empty buffers");
    assert_eq!(gap.get(INNER, 0), Ok(Value::Ubf(UbfRef::EMPTY)));
}

type Change<'a> = &'a dyn Fn(&mut UbfMut<'_>) -> Result<(), UbfError>;

#[test]
fn buffers_are_put_together_as_their_names_say() {
    let of = |list: &[(FieldId, &str)]| {
        let mut fields = Ubf::new();
        list.iter().for_each(|&(id, text)| fields.add(id, text).expect("added"));
        fields
    };
    let source = of(&[(ACCNUM, "s0"), (ACCNUM, "s1"), (ACCCUR, "s")]);
    let target = || of(&[(ACCNUM, "t0"), (FieldId::new(FieldType::String, 2000), "t")]);
    let source = source.fields();
    let after = |change: Change<'_>| {
        let mut fields = target();
        fields.growing(change).expect("sound");
        let texts = fields.iter().map(|f| fields.fields().bytes(f.id, f.occurrence).expect("text"));
        texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(after(&|to| to.update(source)), "s0 s1 s t");
    assert_eq!(after(&|to| to.concat(source)), "t0 s0 s1 s t");
    assert_eq!(after(&|to| to.join(source)), "s0");
    assert_eq!(after(&|to| to.outer_join(source)), "s0 t");
    assert_eq!(after(&|to| to.copy_from(source)), "s0 s1 s");
    assert_eq!(after(&|to| to.project_from(source, &[ACCCUR, AMTAVL])), "s");
    assert_eq!(after(&|to| to.project(&[ACCNUM])), "t0");
    assert_eq!(after(&|to| to.delete_each(&[ACCNUM, ACCCUR])), "t");
    assert_eq!(after(&|to| to.delete_all(ACCNUM)), "t");
    assert_eq!(after(&|to| to.project(&[])), "");
    let mut cleared = target();
    let done = cleared.growing(|fields| {
        fields.clear();
        Ok(())
    });
    assert_eq!(done, Ok(()));
    assert_eq!((cleared.fields().count(), cleared.used_bytes().len()), (0, HEADER_BYTES));
}

#[test]
fn buffers_compare_by_ids_then_values_then_length() {
    let of = |list: &[(FieldId, i64)]| {
        let mut fields = Ubf::new();
        list.iter().for_each(|&(id, value)| fields.add_as(id, value).expect("added"));
        fields
    };
    let base = of(&[(COUNT, 5), (ACCNUM, 1)]);
    for (other, order) in [
        (of(&[(COUNT, 5), (ACCNUM, 1)]), Ordering::Equal),
        (of(&[(COUNT, 4), (ACCNUM, 1)]), Ordering::Greater),
        (of(&[(COUNT, 5)]), Ordering::Greater),
        (of(&[(COUNT, 5), (ACCNUM, 1), (ACCNUM, 1)]), Ordering::Less),
        (of(&[(ACCNUM, 1)]), Ordering::Less),
    ] {
        assert_eq!(base.fields().compare(other.fields()), order);
        assert_eq!(other.fields().compare(base.fields()), order.reverse());
        assert_eq!(base == other, order.is_eq());
    }
}

#[test]
fn sizes_have_limits_and_values_are_aligned() {
    assert_eq!(number(UbfMut::init(&mut [0; HEADER_BYTES - 1])), 4);
    assert_eq!(Ubf::with_size(0).fields().size(), HEADER_BYTES);
    let mut fields = Ubf::new();
    assert_eq!(number(fields.change(COUNT, i32::MAX, 1i64)), 4, "beyond {SIZE_MAX} bytes");
    fields.add(ACCNUM, "abc").expect("added");
    fields.add(FieldId::new(FieldType::Char, 3), b'x').expect("added");
    fields.add(AMTAVL, 1.5).expect("added");
    for field in &fields {
        let bytes = fields.fields().find(field.id, 0).expect("there");
        assert_eq!(bytes.as_ptr().align_offset(8), 0, "{}", field.id);
    }
}

#[test]
fn every_number_has_a_name() {
    for (number, name) in [(3, "BNOTFLD"), (4, "BNOSPACE"), (14, "BEINVAL"), (22, "BEBADOP")] {
        assert_eq!(describe(number).map(|(name, _)| name), Some(name));
    }
    assert_eq!((describe(1), describe(23)), (None, None));
}

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
        (&[(SECOND, of_type(11))], "a value is not of its type"),
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
