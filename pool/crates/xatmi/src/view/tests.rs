//! Files, places, null values, fields both ways.

use std::cmp::Ordering;

use super::*;
use crate::field_table::{FieldFile, FieldTable};
use crate::ubf::{FieldId, Ubf, Value};

/// Members of all types, with all flags, of our own names.
const SOURCE: &str = "\
$/* people */
VIEW PERSON
# type  cname   fbname   count flag size null
short   age     T_AGE    1     -    -    -1
long    ids     T_ID     3     C    -    0
int     small   -        2     -    -    7
char    sex     T_SEX    1     -    -    '-'
float   height  T_HEIGHT 1     S    -    1.5
double  weight  T_WEIGHT 1     F    -    NONE
string  name    T_NAME   1     -    12   'no \\'one\\''
string  phones  T_PHONE  2     CL   8    -
carray  photo   T_PHOTO  1     L    6    '\\0\\n'
string  padded  -        1     P    6    'ab '
END
VIEW SMALL
char one - 1 - - -
END
";

const TABLE: &str = "T_AGE 1 short\nT_ID 2 long\nT_SEX 3 char\nT_HEIGHT 4 float\nT_WEIGHT 5 double\n\
                     T_NAME 6 string\nT_PHONE 7 string\nT_PHOTO 8 carray\n";

fn parsed(text: &str) -> Result<ViewFile, ViewError> {
    ViewFile::parse(Path::new("people.v"), text)
}

fn views() -> ViewTable {
    let mut table = ViewTable::default();
    table.insert(parsed(SOURCE).expect("it is right"));
    table
}

fn fields() -> FieldTable {
    let mut table = FieldTable::new();
    table.insert(&FieldFile::parse(Path::new("people.fd"), TABLE).expect("right")).expect("unique");
    table
}

fn id(name: &str) -> FieldId {
    fields().id(name).expect("it is in the table")
}

#[test]
fn members_stand_where_a_compiler_puts_them() {
    let views = views();
    let view = views.view("PERSON").expect("there");
    let at = |name: &str| view.member(name).expect("there").at;
    let places =
        ["age", "ids", "small", "sex", "height", "weight", "name", "phones", "photo"].map(at);
    assert_eq!(places, [0, 8, 32, 40, 44, 48, 56, 74, 92]);
    let ids = view.member("ids").expect("there");
    assert_eq!((ids.count_at, ids.len_at), (Some(2), None));
    let phones = view.member("phones").expect("there");
    assert_eq!((phones.count_at, phones.len_at), (Some(68), Some(70)));
    assert_eq!((at("padded"), view.size), (98, 104));
    assert_eq!(views.view("SMALL").expect("there").size, 1);
    assert_eq!(views.view("NONE").expect_err("not there").number(), 17);
    assert_eq!(view.member("none").expect_err("not there").number(), 21);
}

#[test]
fn a_compiled_file_is_read_as_its_source_is() {
    let source = parsed(SOURCE).expect("right");
    let compiled = parsed(&source.compiled()).expect("right");
    for (one, two) in source.views.iter().zip(&compiled.views) {
        assert_eq!(
            (&one.name, one.size, one.layout_sum()),
            (&two.name, two.size, two.layout_sum())
        );
    }
    assert!(source.compiled().contains("# PERSON has 104 bytes\n"));
    // What a compiler of another maker has behind the null value.
    assert!(parsed("VIEW A\nshort one - 1 - - - ;offset=0;elmsize=2;\nEND\n").is_ok());
}

#[test]
fn a_header_has_the_struct_with_counts_and_lengths() {
    let header = c_header(&parsed(SOURCE).expect("right"), "people.h");
    for line in [
        "#ifndef VIEW_PEOPLE_H",
        "/* people */",
        "struct PERSON {",
        "  short C_ids;",
        "  long ids[3];",
        "  unsigned short L_phones[2];",
        "  char phones[2][8];",
        "  unsigned short L_photo;",
        "  char photo[6];",
        "struct SMALL {",
    ] {
        assert!(header.lines().any(|its| its == line), "{line}: {header}");
    }
}

#[test]
fn a_mistake_names_line_and_what_is_expected() {
    for (text, said) in [
        ("", "people.v:1: no view: expected VIEW and a name"),
        ("short one - 1 - - -\n", "people.v:1: 'short': expected VIEW and a name"),
        ("VIEW A\nshort one - 1 - - -\n", "people.v:2: the view A has no END"),
        ("VIEW A\nEND\n", "people.v:2: the view A has no member"),
        ("VIEW A\nVIEW B\n", "people.v:2: VIEW within the view A: expected END before it"),
        ("VIEW 1A\n", "people.v:1: '1A' is not a name of a view: "),
        ("VIEW A\nshort one -\n", "people.v:2: no count: "),
        (
            "VIEW A\ndec_t one - 1 - - -\n",
            "people.v:2: 'dec_t' is not a type of a member: expected short, ",
        ),
        (
            "VIEW A\nshort one - 0 - - -\n",
            "people.v:2: count '0' of one: expected a number of 1 to 32767",
        ),
        (
            "VIEW A\nshort one - 1 - 8 -\n",
            "people.v:2: size 8 of one: a short has its own, expected -",
        ),
        (
            "VIEW A\nstring one - 1 - - -\n",
            "people.v:2: size '-' of one: expected a number of 1 to 65535",
        ),
        ("VIEW A\nshort one - 1 X - -\n", "people.v:2: flag 'X' of one: "),
        ("VIEW A\nlong one - 5 L - -\n", "people.v:2: flag 'L' of one: a long has no length"),
        ("VIEW A\nshort one - 1 - - 40000\n", "people.v:2: the null value of one is '40000': "),
        ("VIEW A\nstring one - 1 - 3 'abc'\n", "people.v:2: the null value of one is longer, "),
        ("VIEW A\nstring one - 1 - 3 'ab\n", "people.v:2: the null value 'ab has no ' at its end"),
        (
            "VIEW A\nchar a - 1 - - -\nchar a - 1 - - -\n",
            "people.v:3: the member a stands above already",
        ),
    ] {
        let error = parsed(text).expect_err(text);
        assert!(error.to_string().starts_with(said), "{text}: {error}");
        assert_eq!(error.number(), 18);
    }
}

#[test]
fn an_initial_struct_holds_null_values_and_counts_of_none() {
    let views = views();
    let view = views.view("PERSON").expect("there");
    let mut data = vec![0xee; view.size];
    view.init(&mut data).expect("room");
    for member in &view.members {
        for occurrence in 0..member.count {
            let is_null = view.is_null(member, &data, occurrence).expect("within");
            assert_eq!(is_null, member.name != "weight", "{} {occurrence}", member.name);
        }
        assert_eq!(view.real_count(member, &data), Ok(usize::from(member.name == "weight")));
    }
    let value =
        |name: &str| view.value(view.member(name).expect("there"), &data, 0).expect("there");
    assert_eq!(value("name"), Value::String(b"no 'one'"));
    assert_eq!(value("padded"), Value::String(b"ab   "));
    assert_eq!(value("photo"), Value::Carray(&[0, b'\n']));
    assert_eq!((value("age"), value("small")), (Value::Short(-1), Value::Long(7)));
    assert_eq!(view.init(&mut [0; 8]).expect_err("too short").number(), 14);
}

#[test]
fn values_are_converted_bounded_and_counted() {
    let views = views();
    let view = views.view("PERSON").expect("there");
    let mut data = vec![0; view.size];
    view.init(&mut data).expect("room");
    let member = |name: &str| view.member(name).expect("there");
    view.set(member("ids"), &mut data, 1, Value::String(b"42")).expect("converted");
    assert_eq!(view.count(member("ids"), &data), Ok(2));
    assert_eq!(view.value(member("ids"), &data, 1), Ok(Value::Long(42)));
    view.set(member("small"), &mut data, 1, Value::Long(1 << 32 | 5)).expect("cut");
    assert_eq!(view.value(member("small"), &data, 1), Ok(Value::Long(5)));
    let long = view.set(member("name"), &mut data, 0, Value::String(b"twelve bytes"));
    assert_eq!(long.expect_err("one too many").number(), 4);
    view.set(member("name"), &mut data, 0, Value::Short(-7)).expect("converted");
    assert_eq!(view.value(member("name"), &data, 0), Ok(Value::String(b"-7")));
    let beyond = view.set(member("ids"), &mut data, 3, Value::Long(1));
    assert_eq!(beyond.expect_err("three").number(), 14);
    // What a program wrote where it should not.
    data[2..4].copy_from_slice(&9_i16.to_ne_bytes());
    assert_eq!(view.count(member("ids"), &data).expect_err("beyond the array").number(), 14);
    let at = member("photo").len_at.expect("it has one");
    data[at..at + 2].copy_from_slice(&7_u16.to_ne_bytes());
    assert_eq!(view.value(member("photo"), &data, 0).expect_err("beyond the member").number(), 14);
}

#[test]
fn fields_fill_a_struct_and_come_back() {
    let views = views();
    let table = fields();
    let view = views.view("PERSON").expect("there");
    let mut source = Ubf::new();
    source.add(id("T_AGE"), 30_i16).expect("room");
    (1..=4).for_each(|number| source.add(id("T_ID"), i64::from(number)).expect("room"));
    source.add(id("T_NAME"), "Ada").expect("room");
    source.add(id("T_PHONE"), "12345").expect("room");
    source.add(id("T_HEIGHT"), 1.75_f32).expect("room");
    source.add(id("T_WEIGHT"), 60.0_f64).expect("room");
    source.add(id("T_PHOTO"), &b"\x01\x02\x03"[..]).expect("room");
    let mut data = vec![0; view.size];
    view.init(&mut data).expect("room");
    view.fill(&mut data, source.fields(), &table).expect("filled");
    let member = |name: &str| view.member(name).expect("there");
    assert_eq!(view.count(member("ids"), &data), Ok(3), "the fourth has no place");
    assert_eq!(view.count(member("phones"), &data), Ok(1));
    assert_eq!(view.value(member("height"), &data, 0), Ok(Value::Float(1.75)));
    assert_eq!(
        view.value(member("weight"), &data, 0),
        Ok(Value::Double(0.0)),
        "it goes the other way"
    );
    assert!(view.is_null(member("sex"), &data, 0).expect("there"));
    let back = view.fields(&data, Merge::Update, &table).expect("made");
    assert_eq!(back.fields().occurrences(id("T_ID")), Ok(3));
    assert_eq!(back.get(id("T_NAME"), 0), Ok(Value::String(b"Ada")));
    assert_eq!(back.get(id("T_PHOTO"), 0), Ok(Value::Carray(&[1, 2, 3])));
    assert_eq!(back.get(id("T_WEIGHT"), 0), Ok(Value::Double(0.0)), "it has no null value");
    assert!(
        !back.fields().is_present(id("T_SEX"), 0) && !back.fields().is_present(id("T_HEIGHT"), 0)
    );
    let all = view.fields(&data, Merge::Concat, &table).expect("made");
    assert_eq!(all.get(id("T_SEX"), 0), Ok(Value::Char(b'-')));
    member("name").set_mapping(Mapping::Off);
    let without = view.fields(&data, Merge::Update, &table).expect("made");
    assert!(!without.fields().is_present(id("T_NAME"), 0));
    let nameless = view.fill(&mut data, source.fields(), &FieldTable::new());
    assert_eq!(nameless.expect_err("no table").number(), 9);
}

#[test]
fn lines_are_read_as_they_were_printed() {
    let views = views();
    let view = views.view("PERSON").expect("there");
    let mut data = vec![0; view.size];
    view.init(&mut data).expect("room");
    let member = |name: &str| view.member(name).expect("there");
    view.set(member("ids"), &mut data, 1, Value::Long(5)).expect("room");
    view.set(member("name"), &mut data, 0, Value::String(b"a\tb\\c")).expect("room");
    let text = view.print(&data).expect("sound");
    let lines = String::from_utf8(text.clone()).expect("ascii");
    assert!(lines.contains("ids\t0\nids\t5\n") && lines.contains("name\ta\\09b\\\\c\n"), "{lines}");
    assert!(lines.contains("photo\t\\00\\0a\n") && !lines.contains("phones"), "{lines}");
    let mut again = vec![0; view.size];
    view.read_printed(&mut again, &text).expect("printed by us");
    assert_eq!(view.compare(&data, view, &again), Ok(Ordering::Equal));
    view.read_printed(&mut again, b"# a remark\nids\t1\n+ids\t9\n=age\tids\n-name\n")
        .expect("right");
    assert_eq!(view.value(member("age"), &again, 0), Ok(Value::Short(9)));
    assert_eq!(view.compare(&data, view, &again), Ok(Ordering::Less));
    for (wrong, number) in
        [("ids", 11), ("none\t1", 21), ("name\t\\g1", 11), ("ids\t1\nids\t1\nids\t1\nids\t1", 14)]
    {
        let error = view.read_printed(&mut again, wrong.as_bytes()).expect_err(wrong);
        assert_eq!(error.number(), number, "{wrong}: {error}");
    }
}

#[test]
fn files_are_found_in_the_folders_of_either_pair_of_variables() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("people.V"), SOURCE).expect("written");
    let path = folder.path().to_str().expect("text").to_owned();
    for suffix in ["", "32"] {
        let variable = |name: &str| match name.strip_suffix(suffix) {
            Some("VIEWDIR") => Some(OsString::from(format!("/none:{path}"))),
            Some("VIEWFILES") => Some(OsString::from("people.V")),
            _ => None,
        };
        assert!(ViewTable::named_by(variable).expect("found").view("PERSON").is_ok());
    }
    let lost =
        ViewTable::named_by(|name| (name == "VIEWFILES").then(|| OsString::from("people.V")));
    assert_eq!(lost.expect_err("no folder").number(), 19);
    assert_eq!(
        ViewTable::named_by(|_| None).expect("none").view("PERSON").expect_err("none").number(),
        17
    );
}
