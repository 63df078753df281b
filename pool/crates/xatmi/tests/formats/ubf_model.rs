//! Random changes on regions of random sizes, beside a list that does the same in the obvious way.

use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::ubf::{
    FieldId, FieldType, HEADER_BYTES, LAST, LineForm, Ubf, UbfError, UbfMut, UbfRef, Value, print,
    read_printed,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A field and a value that stands in memory of its own. `Ubf` holds the bytes of a text field.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Short(i16),
    Long(i64),
    Char(u8),
    Float(f32),
    Double(f64),
    String(Vec<u8>),
    Carray(Vec<u8>),
    Ptr(u64),
    Ubf(Ubf),
}

#[derive(Clone, Debug)]
enum Operation {
    Add(FieldId, Owned),
    Change(FieldId, i32, Owned),
    Delete(FieldId, i32),
    DeleteAll(FieldId),
    Update(Vec<(FieldId, Owned)>),
    Concat(Vec<(FieldId, Owned)>),
    Join(Vec<(FieldId, Owned)>),
    OuterJoin(Vec<(FieldId, Owned)>),
    CopyFrom(Vec<(FieldId, Owned)>),
    Project(Vec<FieldId>),
    ProjectFrom(Vec<(FieldId, Owned)>, Vec<FieldId>),
    DeleteEach(Vec<FieldId>),
    Resize(usize),
    Clear,
}

/// The fields in their order; occurrences of one field stand behind each other.
type Model = Vec<(FieldId, Owned)>;

impl Owned {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Short(number) => Value::Short(*number),
            Self::Long(number) => Value::Long(*number),
            Self::Char(byte) => Value::Char(*byte),
            Self::Float(number) => Value::Float(*number),
            Self::Double(number) => Value::Double(*number),
            Self::String(text) => Value::String(text),
            Self::Carray(bytes) => Value::Carray(bytes),
            Self::Ptr(number) => Value::Ptr(*number),
            Self::Ubf(fields) => Value::Ubf(fields.fields()),
        }
    }

    fn empty(field_type: FieldType) -> Self {
        match field_type {
            FieldType::Short => Self::Short(0),
            FieldType::Long => Self::Long(0),
            FieldType::Char => Self::Char(0),
            FieldType::Float => Self::Float(0.0),
            FieldType::Double => Self::Double(0.0),
            FieldType::String => Self::String(Vec::new()),
            FieldType::Carray => Self::Carray(Vec::new()),
            FieldType::Ptr => Self::Ptr(0),
            FieldType::Ubf => Self::Ubf(Ubf::with_size(0)),
            FieldType::View => panic!("no field of the model is a view"),
        }
    }

    /// Bytes of head, value and what fills it up.
    fn bytes(&self) -> usize {
        let len = match self {
            Self::Char(_) => 1,
            Self::Short(_) => 2,
            Self::Float(_) => 4,
            Self::Long(_) | Self::Double(_) | Self::Ptr(_) => 8,
            Self::String(text) => text.len() + 1,
            Self::Carray(bytes) => bytes.len(),
            Self::Ubf(fields) => fields.used_bytes().len(),
        };
        8 + len.div_ceil(8) * 8
    }
}

fn used(model: &Model) -> usize {
    HEADER_BYTES + model.iter().map(|(_, value)| value.bytes()).sum::<usize>()
}

/// Each field with its occurrence.
fn numbered(model: &Model) -> Vec<((FieldId, i32), Owned)> {
    let occurrence = |at: usize| model[..at].iter().filter(|(id, _)| *id == model[at].0).count();
    (0..model.len()).map(|at| ((model[at].0, occurrence(at) as i32), model[at].1.clone())).collect()
}

/// Where in the list an occurrence stands.
fn place(model: &Model, id: FieldId, occurrence: i32) -> Option<usize> {
    let mut places = (0..model.len()).filter(|&at| model[at].0 == id);
    if occurrence == LAST { places.next_back() } else { places.nth(occurrence as usize) }
}

fn sorted(mut list: Model) -> Model {
    list.sort_by_key(|(id, _)| *id);
    list
}

/// What the list is afterwards, or the number of the error.
fn expected(model: &Model, operation: &Operation) -> Result<Model, i32> {
    let mut after = model.clone();
    match operation {
        Operation::Add(id, value) => after.push((*id, value.clone())),
        Operation::Change(id, LAST, value) => after.push((*id, value.clone())),
        Operation::Change(id, occurrence, value) => {
            while place(&after, *id, *occurrence).is_none() {
                after.push((*id, Owned::empty(id.field_type())));
            }
            let at = place(&after, *id, *occurrence).expect("the gap was filled");
            after[at].1 = value.clone();
        }
        Operation::Delete(id, occurrence) => {
            after.remove(place(&after, *id, *occurrence).ok_or(5)?);
        }
        Operation::DeleteAll(id) => {
            place(&after, *id, 0).ok_or(5)?;
            after.retain(|(other, _)| other != id);
        }
        Operation::Concat(source) => after.extend(source.clone()),
        Operation::CopyFrom(source) => after = source.clone(),
        Operation::Project(ids) => after.retain(|(id, _)| ids.contains(id)),
        Operation::ProjectFrom(source, ids) => {
            after = source.clone();
            after.retain(|(id, _)| ids.contains(id));
        }
        Operation::DeleteEach(ids) => after.retain(|(id, _)| !ids.contains(id)),
        Operation::Clear => after.clear(),
        Operation::Resize(_) => {}
        Operation::Update(source) => after = joined(model, source, true, true),
        Operation::Join(source) => after = joined(model, source, false, false),
        Operation::OuterJoin(source) => after = joined(model, source, true, false),
    }
    Ok(sorted(after))
}

fn joined(model: &Model, source: &Model, keeps_mine: bool, keeps_theirs: bool) -> Model {
    let mine = numbered(&sorted(model.clone()));
    let theirs = numbered(&sorted(source.clone()));
    let mut after = Vec::new();
    for (place, value) in &mine {
        match theirs.iter().find(|(other, _)| other == place) {
            Some((_, other)) => after.push((*place, other.clone())),
            None if keeps_mine => after.push((*place, value.clone())),
            None => {}
        }
    }
    let missing = |place: &(FieldId, i32)| mine.iter().all(|(other, _)| other != place);
    after.extend(theirs.iter().filter(|(place, _)| keeps_theirs && missing(place)).cloned());
    after.sort_by_key(|(place, _)| *place);
    after.into_iter().map(|((id, _), value)| (id, value)).collect()
}

fn ubf(list: &Model) -> Ubf {
    let mut fields = Ubf::with_size(0);
    for (id, value) in list {
        fields.add(*id, value.value()).expect("an owned buffer grows");
    }
    fields
}

fn apply(fields: &mut UbfMut<'_>, operation: &Operation) -> Result<(), UbfError> {
    match operation {
        Operation::Add(id, value) => fields.add(*id, value.value()),
        Operation::Change(id, occurrence, value) => fields.change(*id, *occurrence, value.value()),
        Operation::Delete(id, occurrence) => fields.delete(*id, *occurrence),
        Operation::DeleteAll(id) => fields.delete_all(*id),
        Operation::Update(source) => fields.update(ubf(source).fields()),
        Operation::Concat(source) => fields.concat(ubf(source).fields()),
        Operation::Join(source) => fields.join(ubf(source).fields()),
        Operation::OuterJoin(source) => fields.outer_join(ubf(source).fields()),
        Operation::CopyFrom(source) => fields.copy_from(ubf(source).fields()),
        Operation::Project(ids) => fields.project(ids),
        Operation::ProjectFrom(source, ids) => fields.project_from(ubf(source).fields(), ids),
        Operation::DeleteEach(ids) => fields.delete_each(ids),
        Operation::Clear => {
            fields.clear();
            Ok(())
        }
        Operation::Resize(_) => Ok(()),
    }
}

/// Everything that can be asked, against the list.
fn compare(fields: UbfRef<'_>, model: &Model) {
    assert_eq!((fields.count(), fields.used()), (model.len(), used(model)));
    let mut after = None;
    let mut iter = fields.iter();
    for ((id, occurrence), value) in numbered(model) {
        let field = iter.next().expect("as many as in the list");
        assert_eq!((field.id, field.occurrence, field.value), (id, occurrence, value.value()));
        assert_eq!(fields.get(id, occurrence), Ok(value.value()));
        assert_eq!(fields.len_of(id, occurrence), Ok(value.value().raw_len()));
        assert_eq!(fields.next(after), Ok(Some(field)));
        after = Some((id, occurrence));
        let count = model.iter().filter(|(other, _)| *other == id).count();
        assert_eq!(fields.occurrences(id), Ok(count));
        assert!(fields.is_present(id, occurrence) && !fields.is_present(id, count as i32));
        let last = &model[place(model, id, LAST).expect("there")].1;
        assert_eq!(fields.get(id, LAST), Ok(last.value()));
        let first = model.iter().filter(|(other, _)| *other == id).position(|(_, v)| *v == value);
        assert_eq!(fields.find_occurrence(id, value.value()), Ok(first.expect("there") as i32));
    }
    assert_eq!((iter.next(), fields.next(after)), (None, Ok(None)));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..20)
}

fn value(field_type: FieldType) -> BoxedStrategy<Owned> {
    match field_type {
        FieldType::Short => any::<i16>().prop_map(Owned::Short).boxed(),
        FieldType::Long => any::<i64>().prop_map(Owned::Long).boxed(),
        FieldType::Char => any::<u8>().prop_map(Owned::Char).boxed(),
        FieldType::Float => any::<f32>().prop_map(Owned::Float).boxed(),
        FieldType::Double => any::<f64>().prop_map(Owned::Double).boxed(),
        FieldType::String => bytes().prop_map(Owned::String).boxed(),
        FieldType::Carray => vec(any::<u8>(), 0..20).prop_map(Owned::Carray).boxed(),
        FieldType::Ptr => any::<u64>().prop_map(Owned::Ptr).boxed(),
        FieldType::Ubf | FieldType::View => vec(bytes(), 0..3)
            .prop_map(|texts| {
                let id = FieldId::new(FieldType::String, 1);
                let list: Model = texts.into_iter().map(|text| (id, Owned::String(text))).collect();
                Owned::Ubf(ubf(&list))
            })
            .boxed(),
    }
}

fn id() -> impl Strategy<Value = FieldId> {
    (0..9usize, 1..3i32).prop_map(|(at, number)| FieldId::new(FieldType::ALL[at], number))
}

fn field() -> impl Strategy<Value = (FieldId, Owned)> {
    id().prop_flat_map(|id| (Just(id), value(id.field_type())))
}

fn fields() -> impl Strategy<Value = Model> {
    vec(field(), 0..6).prop_map(sorted)
}

fn operation() -> impl Strategy<Value = Operation> {
    let ids = || vec(id(), 0..8);
    prop_oneof![
        6 => field().prop_map(|(id, value)| Operation::Add(id, value)),
        4 => (field(), -1..5i32).prop_map(|((id, value), at)| Operation::Change(id, at, value)),
        4 => (id(), -1..3i32).prop_map(|(id, at)| Operation::Delete(id, at)),
        1 => id().prop_map(Operation::DeleteAll),
        1 => fields().prop_map(Operation::Update),
        1 => fields().prop_map(Operation::Concat),
        1 => fields().prop_map(Operation::Join),
        1 => fields().prop_map(Operation::OuterJoin),
        1 => fields().prop_map(Operation::CopyFrom),
        1 => ids().prop_map(Operation::Project),
        1 => (fields(), ids()).prop_map(|(list, ids)| Operation::ProjectFrom(list, ids)),
        1 => ids().prop_map(Operation::DeleteEach),
        1 => (HEADER_BYTES..500usize).prop_map(Operation::Resize),
        1 => Just(Operation::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_region_does_what_a_list_does(
        size in HEADER_BYTES..400usize,
        operations in vec(operation(), 1..40),
    ) {
        let mut memory = vec![0x5a; size];
        let mut owned = Ubf::with_size(0);
        let mut model = Model::new();
        let mut model_of_owned = Model::new();
        UbfMut::init(&mut memory).expect("room for a header");
        for operation in &operations {
            if let Operation::Resize(size) = *operation && size >= used(&model) {
                memory.resize(size, 0x5a);
                UbfMut::resized(&mut memory).expect("the used bytes fit");
            }
            let mut region = UbfMut::open(&mut memory).expect("sound");
            let room = region.fields().size();
            let done = apply(&mut region, operation);
            match expected(&model, operation) {
                Ok(after) if used(&after) > room => {
                    prop_assert_eq!(done, Err(UbfError::NoSpace { needed: used(&after), room }));
                }
                Ok(after) => {
                    prop_assert_eq!(done, Ok(()), "{:?}", operation);
                    model = after;
                }
                Err(number) => prop_assert_eq!(done.map_err(|e| e.number()), Err(number)),
            }
            compare(UbfRef::check(&memory).expect("still sound"), &model);

            let done = owned.growing(|fields| apply(fields, operation));
            match expected(&model_of_owned, operation) {
                Ok(after) => {
                    prop_assert_eq!(done, Ok(()), "{:?}", operation);
                    model_of_owned = after;
                }
                Err(number) => prop_assert_eq!(done.map_err(|e| e.number()), Err(number)),
            }
            compare(owned.fields(), &model_of_owned);
        }
        prop_assert_eq!(&ubf(&model), &Ubf::from_bytes(&memory).expect("sound"));
    }

    #[test]
    fn printed_fields_read_back_as_the_same(list in fields()) {
        let fields = ubf(&list);
        let table = FieldTable::new();
        let text = print(fields.fields(), &table, &LineForm::PLAIN).expect("sound");
        let read = read_printed(&text, &table, &LineForm::PLAIN).expect("printed");
        prop_assert_eq!(print(read.fields(), &table, &LineForm::PLAIN).expect("sound"), text.clone());
        // Floating numbers are rounded to the digits that are printed.
        if !list.iter().any(|(_, value)| matches!(value, Owned::Float(_) | Owned::Double(_))) {
            prop_assert_eq!(read, fields, "{}", text);
        }
    }
}

#[test]
fn fields_print_as_people_know_them() {
    let text = "*base 1000\nT_ACCNUM 1 string\nT_AMTAVL 3 double\nT_RAW 4 carray\nT_MORE 5 ubf\n";
    let file = pollux_xatmi::field_table::FieldFile::parse("bank.fd".as_ref(), text);
    let mut table = FieldTable::new();
    table.insert(&file.expect("sound")).expect("free");
    let id = |name| table.id(name).expect("known");

    let mut inner = Ubf::new();
    inner.add(id("T_ACCNUM"), "in\tside").expect("added");
    let mut fields = Ubf::new();
    fields.add(id("T_AMTAVL"), 12.5).expect("added");
    fields.add(id("T_ACCNUM"), "back\\slash").expect("added");
    fields.add(id("T_RAW"), &[0u8, b'a', 0xff][..]).expect("added");
    fields.add(id("T_MORE"), inner.fields()).expect("added");
    fields.add(FieldId::new(FieldType::Long, 9), -1i64).expect("added");
    // As a conversion to a text is: CBget and Bprint say the same of a number.
    for number in [17.31_f32, -0.000_001, f32::NEG_INFINITY] {
        fields.add(FieldId::new(FieldType::Float, 9), number).expect("added");
    }
    assert_eq!(
        print(fields.fields(), &table, &LineForm::PLAIN).expect("sound"),
        "((BFLDID32)33554441)\t-1\n((BFLDID32)100663305)\t17.31000\n((BFLDID32)100663305)\t-0.00000\n\
         ((BFLDID32)100663305)\t-inf\nT_AMTAVL\t12.500000\nT_ACCNUM\tback\\\\slash\nT_RAW\t\\00a\\ff\n\
         T_MORE\t\n\tT_ACCNUM\tin\\09side\n"
    );
    for (text, number, line) in [
        ("T_NONE\t1", 9, None),
        ("T_ACCNUM", 11, Some(1)),
        ("# x\n\nT_AMTAVL\ttwo", 11, Some(3)),
        ("T_ACCNUM\t\\x", 11, Some(1)),
        ("\tT_ACCNUM\tx", 11, Some(1)),
        ("((BFLDID32)0)\t1", 6, None),
        ("((BFLDID32)4294967295)\t1", 6, None),
        ("((BFLDID32)2147483647)\t1", 6, None),
        ("- T_NONE", 9, None),
    ] {
        let error = read_printed(text, &table, &LineForm::PLAIN).expect_err(text);
        assert_eq!(error.number(), number, "{text}");
        assert_eq!(error.to_string().starts_with("line "), line.is_some(), "{error}");
        let starts =
            line.is_none_or(|line| error.to_string().starts_with(&format!("line {line}:")));
        assert!(starts, "{error}");
    }
}
