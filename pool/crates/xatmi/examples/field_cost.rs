//! Prints what calls on fields cost: `cargo run --release -p pollux-xatmi --example field_cost`.
//!
//! Each call opens the region anew, as the C interface does.
#![expect(clippy::print_stdout, reason = "an example's answer is what it prints")]

use std::hint::black_box;
use std::time::Instant;

use pollux_xatmi::ubf::{FieldId, FieldType, Region, UbfError, UbfMut, UbfRef, Value};

const ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);
const ACCCUR: FieldId = FieldId::new(FieldType::String, 1002);
const AMTAVL: FieldId = FieldId::new(FieldType::Double, 1003);

/// Calls in one batch; long enough for the clock, short enough to be undisturbed now and then.
const BATCH: u32 = 500;
const BATCHES: u32 = 1000;

fn main() -> Result<(), UbfError> {
    for others in [0, 10, 100] {
        let mut region = region(others)?;
        let bytes = region.bytes().len();
        println!("{} fields in {bytes} bytes", others + 3);
        show("  get a string, the last field", || {
            let mut out = [0; 32];
            let len = UbfRef::open(black_box(region.bytes()))?.copy_to(ACCCUR, 0, &mut out);
            black_box(&out);
            len
        })?;
        show("  get a double", || UbfRef::open(black_box(region.bytes()))?.get(AMTAVL, 0))?;
        show("  change a double", || {
            UbfMut::open(black_box(region.bytes_mut()))?.change(AMTAVL, 0, Value::Double(2.0))
        })?;
        show("  add and delete a string", || {
            let mut fields = UbfMut::open(black_box(region.bytes_mut()))?;
            fields.add(ACCNUM, "ACC00000000002")?;
            fields.delete(ACCNUM, 1)
        })?;
        show("  check all of it", || UbfRef::check(black_box(region.bytes())))?;
    }
    Ok(())
}

/// The fields of the bank behind `others` numbers.
fn region(others: i32) -> Result<Region, UbfError> {
    let mut region = Region::zeroed(1024 * 4);
    let mut fields = UbfMut::init(region.bytes_mut())?;
    for number in 1..=others {
        fields.add(FieldId::new(FieldType::Long, number), i64::from(number))?;
    }
    fields.add(ACCNUM, "ACC00000000001")?;
    fields.add(ACCCUR, "USD")?;
    fields.add(AMTAVL, 1.0)?;
    Ok(region)
}

fn show<T>(name: &str, mut call: impl FnMut() -> Result<T, UbfError>) -> Result<(), UbfError> {
    let mut best_ns = f64::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(call()?);
        }
        best_ns = best_ns.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
    }
    println!("{name:32} {best_ns:6.1} ns");
    Ok(())
}
