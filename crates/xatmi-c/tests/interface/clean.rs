//! The C programs once more under valgrind and with gcc's address sanitizer: nothing is read or
//! written beside memory, and nothing is lost.

use std::path::Path;
use std::process::Command;

use crate::programs::NO_POOL;
use crate::toolchain::{Toolchain, printed};

/// Programs that need no pool, and their environment.
const PROGRAMS: [(&str, &[(&str, &str)]); 11] = [
    ("layouts.c", &[]),
    ("buffers.c", &[]),
    ("more_fields.c", &[]),
    ("fields.c", &[("FIELDTBLS", "bank.fd")]),
    ("expressions.c", &[("FIELDTBLS", "person.fd")]),
    ("json.c", &[("FIELDTBLS", "person.fd")]),
    ("errors.c", &[]),
    ("fml.c", &[]),
    ("calls.c", &[]),
    ("identity.c", &[]),
    ("transactions.c", &[]),
];

fn run_all(more: &[&str], start: impl Fn(&Path) -> Command) {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    std::fs::write(gcc.path("bank.fd"), "*base 1000\nT_ACCNUM 1 string - account\n").expect("");
    let person = "T_NAME 1 string\nT_AGE 2 long\nT_INNER 3 ubf\nT_BYTES 4 carray\n";
    std::fs::write(gcc.path("person.fd"), person).expect("written");
    for (source, variables) in PROGRAMS {
        let mut command = start(&gcc.program_with(source, more));
        command.env_remove("NDRX_TOUT").env_remove("NDRX_NODEID").env_remove("FIELDTBLS");
        command.env("MEMORY_IS_WATCHED", "1");
        command.env("NDRX_QPREFIX", NO_POOL).env("FLDTBLDIR", gcc.path(""));
        command.envs(variables.iter().copied());
        printed(&command.output().expect("run"));
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn valgrind_finds_nothing_wrong_in_any_program() {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "valgrind: {error}");
        eprintln!("skipped: valgrind: {error}");
        return;
    }
    let suppressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interface/valgrind.supp");
    run_all(&["-g"], |program| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full"]);
        valgrind.arg("--errors-for-leak-kinds=definite");
        valgrind.arg(format!("--suppressions={}", suppressions.display())).arg(program);
        valgrind
    });
}

#[test]
fn the_address_sanitizer_finds_nothing_wrong_in_any_program() {
    run_all(&["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], |program| {
        let mut program = Command::new(program);
        program.env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=1");
        program
    });
}
