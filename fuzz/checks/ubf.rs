//! What holds for every region of bytes that somebody takes for a buffer of fields.
//!
//! The fuzz target, the corpus test and the property tests call it. It panics when something does
//! not hold, and so does what it calls when it reads where it must not.
#![cfg_attr(fuzzing, no_main)]

use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::ubf::{
    FieldId, FieldType, HEADER_BYTES, LAST, LineForm, Scratch, Ubf, UbfError, UbfMut, UbfRef,
    Value, print, read_printed,
};

/// Fields that are looked for, beside those that stand in the region.
const ASKED: [FieldId; 3] = [
    FieldId::new(FieldType::Short, 1),
    FieldId::new(FieldType::String, 1001),
    FieldId::new(FieldType::Ubf, FieldId::NUMBER_MAX),
];

/// The input as it is, and once more behind a header that is sound.
pub(crate) fn holds(data: &[u8]) {
    region_holds(data);
    let Some((numbers, entries)) = data.split_first_chunk::<2>() else { return };
    let mut region = vec![0; HEADER_BYTES + entries.len()];
    UbfMut::init(&mut region).expect("room for a header");
    region[HEADER_BYTES..].copy_from_slice(entries);
    let used = HEADER_BYTES + entries.len() / 8 * 8;
    let used = used.saturating_sub(8 * usize::from(numbers[0] % 4)).max(HEADER_BYTES);
    let used = u32::try_from(used).expect("inputs are short");
    region[8..12].copy_from_slice(&used.to_ne_bytes());
    region[12..16].copy_from_slice(&u32::from(numbers[1]).to_ne_bytes());
    region_holds(&region);
}

fn region_holds(region: &[u8]) {
    let checked = UbfRef::check(region);
    if let Ok(fields) = checked {
        sound_region_holds(region, fields);
    }
    let Ok(fields) = UbfRef::open(region) else {
        assert!(checked.is_err(), "what is checked can be opened");
        return;
    };
    assert!(fields.used() <= region.len() && fields.used() <= fields.size());
    read(fields, checked.is_ok());
    write(region, checked.is_ok());
}

fn sound_region_holds(region: &[u8], fields: UbfRef<'_>) {
    assert_eq!(fields.iter().count(), fields.count());
    let owned = Ubf::from_bytes(region).expect("it was checked");
    assert!(owned.fields().compare(fields).is_eq());
    let text = print(fields, &FieldTable::new(), &LineForm::PLAIN).expect("it was checked");
    let back = read_printed(&text, &FieldTable::new(), &LineForm::PLAIN)
        .unwrap_or_else(|e| panic!("{e}:\n{text}"));
    let again =
        print(back.fields(), &FieldTable::new(), &LineForm::PLAIN).expect("it was just made");
    assert_eq!(again, text);
}

fn read(fields: UbfRef<'_>, is_sound: bool) {
    let mut scratch = Scratch::new();
    let mut memory = [0; 8];
    let mut after = None;
    for field in fields {
        let stands = fields.get(field.id, field.occurrence);
        assert!(!is_sound || stands.map(|value| same(value, field.value)) == Ok(true));
        for wanted in FieldType::ALL {
            let _ = field.value.convert(wanted, &mut scratch);
        }
        let _ = fields.copy_to(field.id, field.occurrence, &mut memory);
        let _ = fields.find_occurrence(field.id, field.value);
        let next = fields.next(after).map(|next| next.map(|next| (next.id, next.occurrence)));
        assert!(!is_sound || next == Ok(Some((field.id, field.occurrence))));
        after = Some((field.id, field.occurrence));
    }
    for id in ASKED {
        let count = fields.occurrences(id);
        assert!(!is_sound || count.is_ok());
        let is_there = fields.get(id, LAST).is_ok();
        assert!(!is_sound || is_there == (count != Ok(0)));
        let _ = (fields.get(id, 1), fields.len_of(id, LAST), fields.next(Some((id, 0))));
    }
    assert!(fields.compare(fields).is_eq());
}

type Change = fn(&mut UbfMut<'_>) -> Result<(), UbfError>;

/// Every change on a copy; one that is refused leaves sound fields sound.
fn write(region: &[u8], is_sound: bool) {
    let changes: [Change; 12] = [
        |fields| fields.add(ASKED[0], Value::Short(1)),
        |fields| fields.add(ASKED[1], "text"),
        |fields| fields.add(ASKED[2], UbfRef::EMPTY),
        |fields| fields.change(ASKED[1], 3, "fourth"),
        |fields| fields.change(ASKED[0], LAST, Value::Short(2)),
        |fields| fields.delete(ASKED[1], LAST),
        |fields| fields.delete_all(ASKED[0]),
        |fields| fields.project(&ASKED),
        |fields| fields.delete_each(&ASKED),
        |fields| fields.concat(UbfRef::EMPTY),
        |fields| {
            let same = fields.fields().used_bytes().to_vec();
            fields.update(UbfRef::open(&same)?)
        },
        |fields| {
            fields.clear();
            Ok(())
        },
    ];
    let mut all = [region, &[0; 64]].concat();
    for change in changes {
        let mut one = region.to_vec();
        for memory in [&mut one, &mut all] {
            let Ok(mut fields) = UbfMut::resized(memory) else { return };
            let _ = change(&mut fields);
            let check = UbfRef::check(memory);
            assert!(!is_sound || check.is_ok(), "{check:?}");
        }
    }
}

/// Equal, and so is NaN to itself.
fn same(one: Value<'_>, two: Value<'_>) -> bool {
    format!("{one:?}") == format!("{two:?}")
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
