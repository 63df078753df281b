//! The checks of the fuzz targets: over random inputs that look like what they read, and over their corpus.

use pollux_testing::replay;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[path = "../../../../fuzz/checks/expression.rs"]
mod expression;
#[path = "../../../../fuzz/checks/field_table.rs"]
mod field_table;
#[path = "../../../../fuzz/checks/printed.rs"]
mod printed;
#[path = "../../../../fuzz/checks/ubf.rs"]
mod ubf;

use pollux_xatmi::ubf::{FieldId, FieldType, Ubf, Value};

/// Fewer files than this mean that the corpus was not found.
const FILES_MIN: usize = 10;

/// Pieces of texts, with `·` between them.
const TABLE_PARTS: &[&str] = &[
    "A·B_2·9·T_ACCNUM· ·  ·\t·\n·\n·\r\n·1·2·0·-1·33554431·99999999999999999999·string·long",
    "fml32·int·-·*base·*base 10\n·*base 33554431\n·# x\n·$·$#if 0\n·A 1 long\n",
    "B 2 double - x */\n·C 3 ubf\n·type 4 char\n·\u{e4}·\0",
];

const EXPRESSION_PARTS: &[&str] = &[
    "A·B[1]·F·G·U.F·U[0]·.·X·P·A[?]·F[?]·'7'·'·'J.*n'·\\·7·0·1e3·.5·9223372036854775807·(·)",
    "(·)·!·~·-·+·*·/·%·%%·!%·==·!=·<·<=·>·&&·||·^· ·=·\u{e4}",
];

const PRINTED_PARTS: &[&str] = &[
    "A·B·C·D·E·F·G·P·U·V·X·\t·\t·\t\t·\n·\n·\r\n·1·-7·1.5·nan·-nan·D\t-nan\n·-inf·0x1f·x·\\",
    "\\\\·\\0a·\\00·\\zz·#· ·((BFLDID32)1)·((BFLDID32)167773161)·((BFLDID32)0)·((BFLDID32)x)",
    "A\t1\n·F\ttext\n·U\t\n·\tF\tinner\n·\tU\t\n·\t\tF\tdeeper\n·G\t\n·\u{e4}",
];

fn soup(parts: &[&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<_> = parts.iter().flat_map(|line| line.split('·')).collect();
    vec(select(parts), 0..16).prop_map(|parts| parts.concat().into_bytes())
}

/// Sound regions with buffers in them.
fn region() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || vec(any::<u8>(), 0..12);
    let field = (1..4i32, 0..7usize, any::<i64>(), bytes());
    vec((field, any::<bool>()), 0..8).prop_map(|list| {
        let mut fields = Ubf::with_size(0);
        for ((number, kind, whole, bytes), is_nested) in list {
            if is_nested && kind == 0 {
                let inner = fields.clone();
                fields.add(FieldId::new(FieldType::Ubf, number), inner.fields()).expect("not deep");
            }
            let id = FieldId::new(FieldType::ALL[kind], number);
            let value = if kind < 5 { Value::Long(whole) } else { Value::Carray(&bytes) };
            fields.add_as(id, value).expect("every value is converted");
        }
        fields.used_bytes().to_vec()
    })
}

/// Sound regions, some bytes of which were changed, cut off or added.
fn damaged_region() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..4);
    (region(), changes, 0..40usize, any::<bool>()).prop_map(
        |(mut region, changes, cut, is_longer)| {
            for (at, byte, is_bit) in changes {
                let at = at.index(region.len());
                region[at] = if is_bit { region[at] ^ (1 << (byte % 8)) } else { byte };
            }
            let len = if is_longer { region.len() + cut } else { region.len().saturating_sub(cut) };
            region.resize(len, 0x41);
            region
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn regions_hold(data in prop_oneof![region(), damaged_region(), vec(any::<u8>(), 0..200)]) {
        ubf::holds(&data);
    }

    #[test]
    fn every_start_of_a_region_holds(data in region()) {
        (0..data.len()).for_each(|len| ubf::holds(&data[..len]));
    }

    #[test]
    fn printed_texts_hold(data in soup(PRINTED_PARTS)) {
        printed::holds(&data);
    }

    #[test]
    fn expressions_hold(data in soup(EXPRESSION_PARTS)) {
        expression::holds(&data);
    }

    #[test]
    fn field_tables_hold(data in soup(TABLE_PARTS)) {
        field_table::holds(&data);
    }
}

#[test]
fn every_region_of_the_corpus_holds() {
    replay("ubf", FILES_MIN, ubf::holds);
}

#[test]
fn every_printed_text_of_the_corpus_holds() {
    replay("printed", FILES_MIN, printed::holds);
}

#[test]
fn every_field_table_of_the_corpus_holds() {
    replay("field_table", FILES_MIN, field_table::holds);
}

#[test]
fn every_expression_of_the_corpus_holds() {
    replay("expression", FILES_MIN, expression::holds);
}
