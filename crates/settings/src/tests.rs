//! A small command with every form of key, told by flags and files, right and wrong.

use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use proptest::prelude::*;

use crate::{
    Flags, Given, Keys, Table, bytes, duration, line, name, one_of, parsed, reference, whole,
};

#[derive(Debug, PartialEq)]
struct Shop {
    goods: Vec<String>,
    size: Option<u64>,
    is_loud: bool,
    speed: u8,
    wait: Duration,
    limits: Limits,
    branches: Vec<Branch>,
    staff: Vec<Staff>,
}

#[derive(Debug, PartialEq)]
struct Staff(String, Option<u8>);

#[derive(Debug, PartialEq)]
struct Limits {
    stock: u32,
}

#[derive(Debug, PartialEq)]
struct Branch {
    name: String,
    doors: Vec<u16>,
}

impl Table for Shop {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let goods =
            keys.key("goods", "What is sold").positional().list(&line().called("GOOD"), 0..=3);
        keys.heading("Trade");
        let size =
            keys.key("size", "Size of a box").excludes(&["loud"]).optional(&bytes(1..=1 << 20));
        let is_loud = keys.key("loud", "Shout").short('l').switch();
        let speed = keys.key("speed", "How fast").alias("pace").default("slow");
        let speed = speed.one(&one_of("speed", [("slow", "with care", 1), ("fast", "", 9)]));
        let wait = keys.key("wait_for", "Time before it opens").needs("size", "it is for boxes");
        let wait = wait.default("5s").one(&duration(Duration::ZERO..=Duration::from_secs(60)));
        keys.replaced("tempo", "speed");
        keys.key("loudly", "Short for --loud").only_flag().bare("yes").optional(&line());
        let person = parsed("PERSON", "a name", |text| match text {
            "" => Err("nobody"),
            name => Ok(Staff(name.to_owned(), None)),
        });
        let staff = keys
            .key("staff", "Who sells")
            .split_at_commas(|text| !text.contains('='))
            .texts_or_tables(
                &person,
                0..=3,
                "One with an age",
                |keys| {
                    let name = keys.key("name", "Name").required(&name());
                    let age = keys.key("age", "Age").required(&whole(1..=99).or_number());
                    Some(Staff(name?, Some(age?)))
                },
                |before, next| before.contains(next).then(|| "sells twice".to_owned()),
            );
        let limits = keys.table("limits", "Bounds", |keys| {
            let stock = keys.key("stock", "Most goods").default("7").one(&whole(1..=9));
            Some(Limits { stock: stock? })
        });
        let branches = keys.tables("branch", "Other places", 0..=2, |keys| {
            let name = keys.key("name", "Its name").example("\"north\"").required(&name());
            let doors = keys.key("doors", "Numbers").default("1,2").list(&whole(1..=9), 1..=3);
            Some(Branch { name: name?, doors: doors? })
        });
        if let (Some(9), true) = (speed, keys.has("wait_for")) {
            keys.note("wait_for", "nobody waits at this speed; expected one of both");
        }
        Some(Self {
            goods: goods?,
            size: size?,
            is_loud: is_loud?,
            speed: speed?,
            wait: wait?,
            limits: limits?,
            branches: branches?,
            staff: staff?,
        })
    }
}

/// What a command line says over a file.
fn said(line: &str, file: &str) -> Result<Shop, String> {
    let words = std::iter::once("shop").chain(line.split_whitespace());
    let command = Flags::<Shop>::augment_args(Command::new("shop"));
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    let description = crate::describe::<Shop>();
    let given = crate::given(&matches, &description).over(Given::from_toml(file, "f"));
    given.read().map_err(|mistakes| mistakes.to_string())
}

#[test]
fn nothing_said_is_every_default() {
    let shop = said("", "").expect("right");
    assert_eq!(shop, Given::default().read().expect("right"));
    assert_eq!(
        (shop.speed, shop.wait, shop.limits),
        (1, Duration::from_secs(5), Limits { stock: 7 })
    );
    assert!(shop.goods.is_empty() && shop.branches.is_empty() && !shop.is_loud);
}

#[test]
fn flags_and_files_say_the_same() {
    let flags = said("a b --size 64KiB --wait-for 1s --pace fast --stock 2", "");
    let flags = flags.expect_err("nobody waits");
    assert_eq!(flags, "--wait-for: nobody waits at this speed; expected one of both");
    let flags = said("a b --size 64KiB --wait-for 1s --stock 2", "").expect("right");
    let file = "goods = [\"a\", \"b\"]\nsize = \"64KiB\"\nwait_for = \"1s\"\n[limits]\nstock = 0x2";
    assert_eq!(said("", file).expect("right"), flags);
    assert_eq!(said("", "size = 65536").expect("right").size, Some(65_536));
    assert_eq!(said("", "goods = \"a\"\npace = \"fast\"").expect("right").speed, 9);
}

#[test]
fn a_flag_wins_over_the_file_and_over_what_excludes_it() {
    let file = "speed = \"fast\"\nsize = 5\nwait_for = \"1s\"\n[limits]\nstock = 2";
    let shop = said("--speed slow --stock 3 -l", file).expect("right");
    assert_eq!((shop.speed, shop.limits.stock), (1, 3));
    assert_eq!(said("", "loud = false\nsize = 1").expect("right").size, Some(1), "nobody shouts");
    assert!(shop.is_loud && shop.size.is_none(), "--loud takes the place of the file's size");
}

#[test]
fn tables_are_read_in_order_and_lists_have_defaults() {
    let file = "[[branch]]\nname = \"a\"\n[[branch]]\nname = \"b\"\ndoors = [3]\n";
    let branches = said("", file).expect("right").branches;
    assert_eq!((&*branches[0].name, &*branches[0].doors), ("a", &[1_u16, 2][..]));
    assert_eq!((&*branches[1].name, &*branches[1].doors), ("b", &[3_u16][..]));
}

#[test]
fn a_list_takes_texts_and_tables_and_a_flag_is_divided_where_it_may_be() {
    let staff = |line, file| said(line, file).expect("right").staff;
    let [a, b] = ["a", "b"].map(|name| Staff(name.to_owned(), None));
    assert_eq!(staff("--staff a,b", "staff = [{ name = \"c\", age = 7 }]"), [a, b]);
    assert_eq!(staff("--staff a=b,c", ""), [Staff("a=b,c".to_owned(), None)]);
    let c = Staff("c".to_owned(), Some(7));
    assert_eq!(staff("", "staff = [{ name = \"c\", age = 7 }, \"a,b\"]")[0], c);
}

#[test]
fn every_mistake_is_answered_with_its_place_and_what_is_expected() {
    for (line, file, told) in [
        (
            "",
            "speeed = 1",
            "f:1:1: unknown key \"speeed\" at the top of the file; did you mean \"speed\"?",
        ),
        (
            "",
            "brnch = 1",
            "f:1:1: unknown key \"brnch\" at the top of the file; did you mean \"branch\"?",
        ),
        (
            "",
            "stock = 1",
            "f:1:1: the key \"stock\" is not for the top of the file; it belongs to [limits]",
        ),
        (
            "",
            "[limits]\nstok = 1",
            "f:2:1: unknown key \"stok\" in [limits]; did you mean \"stock\"?",
        ),
        (
            "",
            "loudly = \"a\"",
            "f:1:1: unknown key \"loudly\" at the top of the file; did you mean \"loud\"?",
        ),
        ("--staff a,a", "", "--staff a: sells twice"),
        (
            "",
            "staff = [\"a\", { nam = \"b\", age = 0 }]",
            "f:1:15: a table in staff lacks the key \"name\"; expected a name of at most 60 letters, \
             digits, \"-\", \"_\" or \".\" that begins with a letter or digit\n\
             f:1:17: unknown key \"nam\" in a table in staff; did you mean \"name\"?\n\
             f:1:34: age = 0: expected a whole number from 1 to 99",
        ),
        ("", "limits = 1", "f:1:1: \"limits\" is written [limits]"),
        ("", "[branch]\nname = \"a\"", "f:1:2: \"branch\" is written [[branch]]"),
        ("", "branch = [1]", "f:1:1: \"branch\" is written [[branch]]"),
        (
            "",
            "[[branch]]\n",
            "f:1:1: [[branch]] lacks the key \"name\"; expected a name of at most 60 letters, digits, \
             \"-\", \"_\" or \".\" that begins with a letter or digit, such as \"north\"",
        ),
        (
            "",
            "[[branch]]\nname = \"a\"\ndoors = [1, 10, \"x\"]",
            "f:3:13: doors = 10: expected a whole number from 1 to 9\n\
             f:3:17: doors = \"x\": this is a text; expected a whole number from 1 to 9",
        ),
        (
            "",
            "[[branch]]\nname = \"a\"\ndoors = []",
            "f:3:9: doors: an empty list; expected 1 to 3",
        ),
        ("a b c d", "", "GOOD: 4; expected 0 to 3"),
        (
            "--size 0 --speed quick",
            "",
            "--size 0: expected a size from 1 to 1MiB, such as 128, 64KiB or 1MiB\n\
             --speed quick: no such speed; expected slow, fast",
        ),
        ("", "loud = \"yes\"", "f:1:8: loud = \"yes\": this is a text; expected true or false"),
        ("--size 1 --loud", "", "--size: can't stand beside --loud; expected one of them"),
        ("", "loud = true\nsize = 1", "f:2:8: size: can't stand beside loud; expected one of them"),
        ("--loud --stock 0", "size = true", "--stock 0: expected a whole number from 1 to 9"),
        ("--wait-for 1s", "", "--wait-for: it is for boxes; expected --size as well"),
        ("", "wait_for = \"1s\"", "f:1:12: wait_for: it is for boxes; expected size as well"),
        ("", "tempo = 3", "f:1:9: tempo: was replaced by speed"),
        ("--tempo 3", "", "--tempo: was replaced by speed"),
        (
            "--stock 0",
            "size = \"1\"\nspeed = 2\n",
            "--stock 0: expected a whole number from 1 to 9\n\
             f:2:9: speed = 2: this is a whole number; expected slow, fast",
        ),
        (
            "",
            "size = 1kb",
            "f:1:8: not TOML: expected a text in quotes, such as \"200ms\", a number, true, false or a list",
        ),
    ] {
        assert_eq!(said(line, file).expect_err(told), told, "{line} {file}");
    }
}

#[test]
fn a_text_that_is_not_toml_is_told_by_its_lines_alone() {
    let told = said("--size 0", "speed = \"fast\"\ngoods = [").expect_err("open");
    assert!(told.starts_with("--size 0: ") && told.contains("\nf:2:"), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
}

#[test]
fn a_file_without_end_is_refused_and_not_read_into_memory() {
    let told = Given::from_file("/dev/zero".as_ref(), "--config").expect_err("endless").to_string();
    assert_eq!(told, "--config: /dev/zero is larger than 1048576 bytes");
}

#[test]
fn help_names_defaults_and_words() {
    let mut command = Flags::<Shop>::augment_args(Command::new("shop"));
    let help = command.render_long_help().to_string();
    for part in [
        "[GOOD]...",
        "Trade:",
        "-l, --loud",
        "--config <FILE>",
        "Time before it opens [default: 5s]",
        "- slow: with care",
        "--stock <N>",
    ] {
        assert!(help.contains(part), "no {part} in {help}");
    }
    assert!(!help.contains("tempo") && !help.contains("--name"), "{help}");
    let matches = command.try_get_matches_from(["shop", "--size", "5"]).expect("flags");
    let flags = Flags::<Shop>::from_arg_matches(&matches).expect("flags");
    assert_eq!(flags.read().expect("right").size, Some(5));
}

#[test]
fn the_reference_page_has_every_key_in_its_section() {
    let page = reference::<Shop>();
    for part in [
        "| `goods` | `GOOD` | one or a list of: one line of text |  | What is sold |",
        "### Trade",
        "| `loud` | `-l`, `--loud` | true or false | `false` | Shout |",
        "| `speed` | `--speed` | slow, fast<br>`slow`: with care | `slow` | How fast |",
        "## `[limits]`\n\nBounds.",
        "## `[[branch]]`\n\nOther places.",
        "| `name` |  | a name",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("tempo"), "{page}");
}

proptest! {
    #[test]
    fn no_text_makes_a_table_panic(text in "([a-z_.\\[\\]]{1,9} ?= ?[\\PC]{0,12}\n){0,4}") {
        let _ = Given::from_toml(&text, "f").read::<Shop>();
    }
}
