//! A small command with every form of key, set by flags and files, right and wrong.

use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use proptest::prelude::*;

use crate::{
    Chosen, Flags, Given, Keys, Kind, Table, bytes, duration, integer, line, misread, name, one_of,
    parsed, reference, table,
};

table! { keys, key;
    #[derive(Debug, PartialEq)]
    struct Shop {
        /// What is sold
        goods: Vec<String> = key.positional().list(&line().called("GOOD"), 0..=3),
        #[heading("Trade")]
        /// Size of a box
        size: Option<u64> = key.excludes(&["loud"]).optional(&bytes(1..=1 << 20)),
        /// Shout
        is_loud as "loud": bool = key.short('l').switch(),
        /// How fast: {names}
        speed: u8 = key.alias("pace").default("slow")
            .one(&one_of("speed", [("slow", "with care", 1), ("fast", "", 9)])),
        /// Time before it opens
        wait as "wait_for": Duration = key.needs("size", "it is for boxes").default("5s")
            .one(&duration(Duration::ZERO..=Duration::from_secs(60))),
        /// Short for --loud
        loudly: Option<String> = key.only_flag().bare("yes").optional(&line()),
        /// Sellers
        staff: Vec<Staff> = key.split_at_commas(|text| !text.contains('=')).texts_or_tables(
            &person(), 0..=3, "One with an age", Staff::read,
            |before, next| before.contains(next).then(|| "sells twice".to_owned()),
        ),
        limits: Limits = keys.table("limits", "Bounds", Limits::read),
        branches: Vec<Branch> = keys.tables("branch", "Other places", 0..=2, Branch::read),
    }
    => judged
}

table! { keys, key;
    #[derive(Debug, PartialEq)]
    struct Limits {
        /// Most goods
        stock: u32 = key.default("7").one(&integer(1..=9)),
    }
}

table! { keys, key;
    #[derive(Debug, PartialEq)]
    struct Branch {
        /// Its name
        name: Option<String> = key.example("\"north\"").required(&name()),
        /// Numbers
        doors: Vec<u16> = key.default("1,2").list(&integer(1..=9), 1..=3),
    }
}

#[derive(Debug, PartialEq)]
struct Staff(String, Option<u8>);

fn person() -> Kind<Staff> {
    parsed("PERSON", "a name", |text| match text {
        "" => Err("empty"),
        name => Ok(Staff(name.to_owned(), None)),
    })
}

impl Staff {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let name = keys.key("name", "Name").required(&name());
        let age = keys.key("age", "Age").required(&integer(1..=99).or_number());
        Some(Self(name?, Some(age?)))
    }
}

impl Shop {
    fn judged(self, keys: &mut Keys<'_>) -> Self {
        keys.replaced("tempo", "speed");
        if self.speed == 9 && keys.has("wait_for") {
            keys.note("wait_for", "no waiting at this speed; expected one of both");
        }
        self
    }
}

/// What a command line says over a file.
fn said(line: &str, file: &str) -> Result<Shop, String> {
    let words = std::iter::once("shop").chain(line.split_whitespace());
    let command = Flags::<Shop>::augment_args(Command::new("shop"));
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    let flags = Flags::<Shop>::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    flags.read_with(Some(("f", file))).map_err(|mistakes| mistakes.to_string())
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
    let flags = flags.expect_err("not beside this speed");
    assert_eq!(flags, "--wait-for: no waiting at this speed; expected one of both");
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
    assert_eq!(said("", "loud = false\nsize = 1").expect("right").size, Some(1), "it is off");
    assert!(shop.is_loud && shop.size.is_none(), "--loud takes the place of the file's size");
}

#[test]
fn tables_are_read_in_order_and_lists_have_defaults() {
    let file = "[[branch]]\nname = \"a\"\n[[branch]]\nname = \"b\"\ndoors = [3]\n";
    let branches = said("", file).expect("right").branches;
    assert_eq!((branches[0].name.as_deref(), &*branches[0].doors), (Some("a"), &[1_u16, 2][..]));
    assert_eq!((branches[1].name.as_deref(), &*branches[1].doors), (Some("b"), &[3_u16][..]));
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
    let cases = include_str!("mistakes.txt").trim_end().split("\n\n");
    for case in cases {
        let part = |sign: &str| -> Vec<&str> {
            case.lines().filter_map(|line| line.strip_prefix(sign)).collect()
        };
        let message = case.lines().filter(|line| !line.starts_with(['$', '|'])).collect::<Vec<_>>();
        let answer = said(&part("$ ").concat(), &part("| ").join("\n"));
        assert_eq!(answer.expect_err(case), message.join("\n"), "{case}");
    }
}

#[test]
fn a_text_that_is_not_toml_is_recognised_by_its_lines_alone() {
    let message = said("--size 0", "speed = \"fast\"\ngoods = [").expect_err("open");
    assert!(message.starts_with("--size 0: ") && message.contains("\nf:2:"), "{message}");
    assert_eq!(message.lines().count(), 2, "{message}");
}

#[test]
fn a_file_without_end_is_refused_and_not_read_into_memory() {
    let message =
        Given::from_file("/dev/zero".as_ref(), "--config").expect_err("endless").to_string();
    assert_eq!(message, "--config: /dev/zero is larger than 1048576 bytes");
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
        "How fast: slow or fast",
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
        "| `speed` | `--speed` | slow, fast<br>`slow`: with care | `slow` | How fast: slow or fast |",
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

table! { keys, key;
    #[derive(Debug, PartialEq)]
    struct Stall {
        /// How fast: {names}
        speed: u8 = key.default("3").one(&integer(1..=9)),
        /// Under the sky
        is_open as "open": bool = key.switch(),
        /// Neighbours
        neighbours: Vec<Branch> = keys.tables("neighbour", "Other stalls", 0..=2, Branch::read),
    }
}

table! { keys, key;
    #[derive(Debug, PartialEq)]
    struct Kiosk {
        /// How fast: {names}
        speed: u8 = key.default("5").one(&integer(1..=9)),
        /// Where it stands
        place: Option<String> = key.optional(&line()),
    }
}

#[derive(Debug, PartialEq)]
enum StallOrKiosk {
    Stall(Stall),
    Kiosk(Kiosk),
}

impl Table for StallOrKiosk {
    fn read(keys: &mut Keys<'_>) -> Self {
        let chosen = if keys.names("place") { Chosen::Other } else { Chosen::Own };
        let stall = ("is for stalls; this is a kiosk", |keys: &mut Keys<'_>| {
            Self::Stall(Stall::read(keys))
        });
        let kiosk = ("is for kiosks; this is a stall", |keys: &mut Keys<'_>| {
            Self::Kiosk(Kiosk::read(keys))
        });
        keys.either(chosen, stall, kiosk)
    }
}

#[test]
fn two_tables_of_one_grammar_share_keys_and_each_knows_those_of_the_other() {
    let read = |text: &str| {
        let read = Given::from_toml(text, "f").read::<StallOrKiosk>();
        read.map_err(|mistakes| mistakes.to_string())
    };
    let stall = Stall { speed: 3, is_open: false, neighbours: Vec::new() };
    assert_eq!(read(""), Ok(StallOrKiosk::Stall(stall)));
    let kiosk = Kiosk { speed: 5, place: Some("north".to_owned()) };
    assert_eq!(read("place = \"north\""), Ok(StallOrKiosk::Kiosk(kiosk)));
    let wrong = read("place = \"north\"\nopen = true\n[[neighbour]]\nname = \"a\"");
    let expected = "f:2:1: open: is for stalls; this is a kiosk\n\
                    f:3:3: [[neighbour]] is for stalls; this is a kiosk";
    assert_eq!(wrong.expect_err("of the other"), expected);
    let wrong = read("plaec = \"north\"").expect_err("unknown");
    assert!(wrong.ends_with("did you mean \"place\"?"), "{wrong}");
    let mut flags = Given::default();
    flags.flag("open", vec!["true".to_owned()]);
    let wrong = flags.over(Given::from_toml("place = \"north\"", "f")).read::<StallOrKiosk>();
    assert_eq!(wrong.expect_err("a flag").to_string(), "--open: is for stalls; this is a kiosk");
    let flags: Vec<_> = crate::describe::<StallOrKiosk>().flags().map(|row| row.name).collect();
    assert_eq!(flags, ["speed", "open"], "the other's have no flags");
}

#[test]
fn every_flag_and_key_takes_the_same_spellings() {
    assert_eq!(misread::<Shop>(), [""; 0]);
}

table! { keys, key;
    /// A number with a reader of its own.
    #[derive(Debug, PartialEq)]
    struct Odd {
        /// How many
        count: Option<u8> = key.optional(&Kind::new("N", "a whole number from 10 to 20", |text| {
            text.parse().map_err(|_| "not a number".to_owned())
        })),
    }
}

#[test]
fn a_flag_with_a_grammar_of_its_own_is_found() {
    let wrong = misread::<Odd>();
    for found in [
        "--count does not take \"1_0\"",
        "key count does not take \"10e0\"",
        "--count takes \"+1\"",
    ] {
        assert!(wrong.iter().any(|line| line.starts_with(found)), "{found}: {wrong:#?}");
    }
}
