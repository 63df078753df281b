//! The headers compile alone and in any order, without a warning, for each standard of C and C++; and every function of
//! theirs has its errors in docs/reference/xatmi.md.
//!
//! Each of the errors is produced by a C program of the tests: those of this folder, and those of the pool's command,
//! which run on a pool. A C program produces an error where it names the function and the error in one statement, or the
//! error in the next one; what a macro of the program checks counts for the statement that uses it. Where a
//! variable `error` stands for them, a comment with `errors:` and their names comes before it, in the same
//! function.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Toolchain;

pub(crate) const HEADERS: [&str; 11] = [
    "atmi.h",
    "xatmi.h",
    "tx.h",
    "ubf.h",
    "fml32.h",
    "fml.h",
    "fml1632.h",
    "userlog.h",
    "ndebug.h",
    "ndrstandard.h",
    "Exfields.h",
];

/// Those that are for bindings, or for names of other makers.
const MORE_HEADERS: [&str; 18] = [
    "oatmi.h",
    "oubf.h",
    "oatmisrv.h",
    "oatmisrv_integra.h",
    "ondebug.h",
    "odebug.h",
    "nerror.h",
    "onerror.h",
    "sys_unix.h",
    "xa.h",
    "tpadm.h",
    "Usysflds.h",
    "Usysfl32.h",
    "Uunix.h",
    "Usignal.h",
    "nstopwatch.h",
    "ndebugcmn.h",
    "thlock.h",
];

/// All of them.
fn all_headers() -> impl Iterator<Item = &'static str> {
    HEADERS.into_iter().chain(MORE_HEADERS)
}

/// Each header alone, each pair of the common ones in both orders, and one twice.
fn sources() -> Vec<String> {
    let mut sources = Vec::new();
    for one in MORE_HEADERS {
        sources.push(format!("#include <{one}>\n"));
    }
    sources.push(all_headers().map(|one| format!("#include <{one}>\n")).collect());
    for one in HEADERS {
        sources.push(format!("#include <{one}>\n"));
        for other in HEADERS {
            sources.push(format!("#include <{one}>\n#include <{other}>\n"));
        }
    }
    sources
}

fn compile_all(toolchain: &Toolchain, language: &str, standards: &[&str], more: &[&str]) {
    let path = toolchain.path("headers.c");
    for source in sources() {
        std::fs::write(&path, format!("{source}extern int not_empty;\n")).expect("written");
        for standard in standards {
            let flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wwrite-strings", "-Werror"];
            let what = ["-x", language, standard, "-fsyntax-only", "headers.c"];
            let output = toolchain.run(&[&what[..], &flags, more].concat());
            let said = &output.stderr;
            assert!(output.status.success(), "{standard}: {source}{said}");
        }
    }
}

#[test]
fn c_takes_them_in_any_order_without_a_warning() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let more = ["-Wstrict-prototypes", "-Wmissing-prototypes"];
    compile_all(&gcc, "c", &["-std=c99", "-std=c11", "-std=c17"], &more);
}

#[test]
fn cpp_takes_them_in_any_order_without_a_warning() {
    let Some(gpp) = Toolchain::of("g++") else { return };
    compile_all(&gpp, "c++", &["-std=c++11", "-std=c++17"], &[]);
}

#[test]
fn c_finds_every_function_of_the_headers_in_the_library() {
    link_all("gcc", "c");
}

#[test]
fn cpp_finds_every_function_of_the_headers_in_the_library() {
    link_all("g++", "c++");
}

fn link_all(compiler: &'static str, language: &str) {
    let Some(toolchain) = Toolchain::of(compiler) else { return };
    let named = all_headers().flat_map(|name| {
        let path = toolchain.path("include").join(name);
        let text = std::fs::read_to_string(path).expect("a header");
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let name = |line: &String| function(line).or_else(|| alias(line)).or_else(|| inline(line));
        lines.into_iter().filter_map(move |line| name(&line))
    });
    let provided_by_the_program = ["tpsvrinit", "tpsvrdone", "tpsvrthrinit", "tpsvrthrdone"];
    let names: Vec<_> =
        named.filter(|name| !provided_by_the_program.contains(&name.as_str())).collect();
    for known in [
        "tpcall",
        "pollux_server_main",
        "Bmkfldid",
        "Fadd32",
        "Fmkfldid32",
        "Fadd",
        "CFget",
        "userlog",
        "Bgetrv",
    ] {
        assert!(names.iter().any(|name| name == known), "{known}: {names:?}");
    }
    let uses: String = names.iter().map(|name| format!("  (void (*)(void)){name},\n")).collect();
    let source = format!(
        "#include <atmi.h>\n#include <fml1632.h>\n#include <tx.h>\n#include <userlog.h>\n#include <ndebug.h>\n#include <onerror.h>\n#include <oubf.h>\n#include <oatmisrv.h>\nvoid (*all[])(void) = {{\n{uses}}};\n\
         int main(void) {{ return all[0] == 0; }}\n"
    );
    std::fs::write(toolchain.path("all.c"), source).expect("written");
    let arguments =
        ["-w", "-o", "all", "-x", language, "all.c", "-x", "none", "-Llib", "-lpollux_xatmi"];
    let output = toolchain.run(&arguments);
    assert!(output.status.success(), "{}", output.stderr);
}

/// The name of the function that a line declares.
pub(crate) fn function(line: &str) -> Option<String> {
    let declaration = line.strip_prefix("extern ").filter(|rest| !rest.starts_with('"'))?;
    // Variables have no parenthesis.
    let before = declaration.split_once('(')?.0;
    Some(before.rsplit([' ', '*']).next()?.to_owned())
}

/// The name of the function that a line defines: a wrapper of one of the library's.
fn inline(line: &str) -> Option<String> {
    let definition = line.strip_prefix("static __inline__ int ")?;
    Some(definition.split('(').next()?.to_owned())
}

/// The other name that a line gives to a function: `#define Fadd32 Badd`.
fn alias(line: &str) -> Option<String> {
    let (name, meaning) = line.strip_prefix("#define ")?.split_once(' ')?;
    let is_macro = name.contains('(') || ["Ferror32", "Ferror"].contains(&name);
    let is_function = meaning.trim_start_matches('C').starts_with(['B', 'F'])
        && meaning.chars().any(char::is_lowercase)
        && !meaning.starts_with("Bv")
        && !is_macro;
    (is_function && name.starts_with(['F', 'C'])).then(|| name.to_owned())
}

/// A program as those of Enduro/X are written: names of ndrstandard.h come with atmi.h.
const OF_ENDUROX: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <atmi.h>
#include <ubf.h>
#include <Exfields.h>
#include <ndrstandard.h>
#include <thlock.h>
extern NDRX_API int check(void);
exprivate NDRX_SPIN_LOCKDECL(turns);
struct pair { char one; long other; };
exprivate int fails(int fail) {
    int ret = EXSUCCEED;
    if (EXTRUE == fail) EXFAIL_OUT(ret);
out:
    return ret;
}
expublic int check(void) {
    char text[4], more[8] = "ab";
    int numbers[3] = {1, 2, 3};
    if (fails(EXFALSE) != 0 || fails(EXTRUE) != -1) return 1;
    NDRX_STRCPY_SAFE(text, "longer");
    if (strcmp(text, "lon") != 0) return 2;
    NDRX_STRCPY_SAFE_DST(more, "xy", sizeof(more));
    NDRX_STRCAT_S(more, sizeof(more), "12345678");
    if (strcmp(more, "xy12345") != 0) return 3;
    NDRX_STRNCPY_EOS(text, "abcd", 2, sizeof(text));
    if (strcmp(text, "ab") != 0 || text[2] != EXEOS) return 4;
    NDRX_STRCPY_LAST_SAFE(text, "abcdef", 2);
    if (strcmp(text, "ef") != 0) return 5;
    NDRX_STRNCPY(text, "wxyz", 4);
    if (memcmp(text, "wxyz", 4) != 0) return 6;
    if (N_DIM(numbers) != 3 || NDRX_MIN(2, 1) != 1 || EXBYTE(0x1ff) != 0xff) return 7;
    if (EXOFFSET(struct pair, other) != (long)sizeof(long)) return 8;
    if (EXELEM_SIZE(struct pair, one) != 1 || EXDIRSEP != '/') return 9;
    if (EX_NREQLOGFILE != 167772562 || EX_TPERRNO != 33554882) return 10;
    if (EX_CC_CMD != 67109364 || EX_CC_VALUE != 167772671) return 30;
    if (Bmkfldid(BFLD_STRING, 402) != EX_NREQLOGFILE) return 11;
    NDRX_SPIN_INIT_V(turns);
    NDRX_SPIN_LOCK_V(turns);
    if (NDRX_SPIN_TRYLOCK_V(turns) == 0) return 12;
    NDRX_SPIN_UNLOCK_V(turns);
    if (NDRX_SPIN_TRYLOCK_V(turns) != 0 || NDRX_SPIN_UNLOCK_V(turns) != 0) return 13;
    NDRX_SPIN_DESTROY_V(turns);
    if (XATMI_SUBTYPE_LEN < XATMI_SUBTYPE_LENGTH || XATMI_TYPE_LEN != XATMI_TYPE_LENGTH) return 14;
    return 0;
}
int main(void) { return check(); }
"#;

#[test]
fn a_program_of_endurox_has_the_names_of_its_standard_header() {
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        let Some(toolchain) = Toolchain::of(compiler) else { continue };
        std::fs::write(toolchain.path("endurox.c"), OF_ENDUROX).expect("written");
        let flags = ["-Wall", "-Wextra", "-Werror", "-o", "endurox", "-x", language, "endurox.c"];
        let linked = ["-x", "none", "-Llib", "-lpollux_xatmi", "-Wl,-rpath,lib"];
        let output = toolchain.run(&[&flags[..], &linked].concat());
        assert!(output.status.success(), "{compiler}: {}", output.stderr);
        let mut program = std::process::Command::new(toolchain.path("endurox"));
        program.current_dir(toolchain.path(""));
        let status = program.status().expect("it runs");
        assert_eq!(status.code(), Some(0), "{compiler}: the check of that number failed");
    }
}

/// What programs of Enduro/X call without a header of their own for it: each header alone, and what it brings.
const BROUGHT: [(&str, &str); 7] = [
    (
        "Usignal.h",
        "USIGTYP (*handler) _((int)) = SIG_IGN; return Usignal(SIGINT, handler) == SIG_ERR || Uunixerr < 0;",
    ),
    ("atmi.h", "void (_TMDLLENTRY *handler)(char *, long, long) = NULL; return handler != NULL;"),
    (
        "atmi.h",
        "UBFH *fields = NULL; XID id; size_t most = PATH_MAX; (void)id; puts(\"\"); (void)Bnum(fields); return most == 0;",
    ),
    (
        "xatmi.h",
        "UBFH *fields = NULL; struct xa_switch_t *none = NULL; (void)Bnum(fields); return none != NULL;",
    ),
    (
        "ubf.h",
        "int64_t long_one = 1; pid_t process = 1; printf(\"%\" PRId64 \"\", long_one); return process == 1 && INT_MAX == 0;",
    ),
    (
        "ndebug.h",
        "usleep(1); (void)getpid(); (void)htonl(1); (void)socket(AF_INET, SOCK_STREAM, 0); errno = 0; struct sockaddr_in to; (void)to; \
         if (G_tp_debug.level >= log_dump || G_ndrx_debug.level >= log_dump || G_ubf_debug.level >= log_dump) return 1; \
         tplogconfig(LOG_FACILITY_TP, log_dump, NULL, NULL, NULL); return G_tp_debug.level != log_dump;",
    ),
    (
        "sys_unix.h",
        "struct pollfd one; mqd_t queue = (mqd_t)-1; (void)one; (void)open(\"\", O_RDONLY); (void)time(NULL); return queue != (mqd_t)-1;",
    ),
];

#[test]
fn a_header_of_endurox_brings_those_of_the_system_that_it_brings_there() {
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        let Some(toolchain) = Toolchain::of(compiler) else { continue };
        for (header, body) in BROUGHT {
            let source = format!("#include <{header}>\nint main(void) {{ {body} }}\n");
            std::fs::write(toolchain.path("brought.c"), source).expect("written");
            let flags = [
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-result",
                "-o",
                "brought",
                "-x",
                language,
                "brought.c",
            ];
            let linked = ["-x", "none", "-Llib", "-lpollux_xatmi", "-Wl,-rpath,lib"];
            let output = toolchain.run(&[&flags[..], &linked].concat());
            assert!(output.status.success(), "{compiler}: {header}: {}", output.stderr);
            let mut program = std::process::Command::new(toolchain.path("brought"));
            program.current_dir(toolchain.path("")).env("NDRX_DEBUG_STR", "tp=2");
            let status = program.stdout(std::process::Stdio::null()).status().expect("it runs");
            assert_eq!(status.code(), Some(0), "{compiler}: {header}");
        }
    }
}

#[test]
fn what_is_not_here_is_refused_with_a_word() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let queues = "pollux has no persistent queues: see docs/xatmi-programming.md";
    for (body, words) in [
        ("return tpenqueue(\"S\", \"Q\", 0, 0, 0, 0);", queues),
        ("return tpdequeue(\"S\", \"Q\", 0, 0, 0, 0);", queues),
        // A program that takes the address is refused by the linker.
        ("return (int)(long)(void *)tpenqueue;", "undefined reference to `tpenqueue'"),
    ] {
        let source = format!("#include <atmi.h>\n#include <fml.h>\nint main(void) {{ {body} }}\n");
        std::fs::write(gcc.path("refused.c"), source).expect("written");
        let output = gcc.run(&["-o", "refused", "refused.c", "-Llib", "-lpollux_xatmi"]);
        let said = &output.stderr;
        assert!(!output.status.success() && said.contains(words), "{body}: {said}");
    }
}

/// Compilers that know the attribute `error`, where they are there.
fn compilers() -> impl Iterator<Item = (Toolchain, &'static str)> {
    let known = [("gcc", "c"), ("g++", "c++"), ("clang", "c"), ("clang++", "c++")];
    let there = |compiler: &str| {
        let output = std::process::Command::new(compiler).arg("--version").output();
        compiler.starts_with('g') || output.is_ok()
    };
    let known = known.into_iter().filter(move |(compiler, _)| there(compiler));
    known.filter_map(|(compiler, language)| Some((Toolchain::of(compiler)?, language)))
}

#[test]
fn programs_may_use_the_name_of_tpalloc_in_other_ways() {
    const USES: &str = "#include <stddef.h>\n\
        static const char *next(void) { static int calls; return calls++ ? \"UBF\" : \"VIEW\"; }\n\
        int main(int argc, char **argv) {\n  \
          char kept[] = \"VIEW\";\n  \
          char *(*function)(const char *, const char *, long) = tpalloc;\n  \
          function = &tpalloc;\n  \
          char *all[] = {(tpalloc)(\"VIEW\", NULL, 0), function(\"VIEW\", NULL, 0), tpalloc(kept, NULL, 0),\n    \
            tpalloc(argv[0], NULL, 0), tpalloc(NULL, NULL, 0), tpalloc(0, 0, 0), tpalloc(next(), NULL, 0),\n    \
            tpalloc(argc > 1 ? \"UBF\" : \"JSON\", NULL, 0), tpalloc(\"VIEWS\", NULL, 0),\n    \
            tpalloc(\"X_OCTET\", NULL, 10)};\n  \
          return all[0] == all[1];\n}\n";
    let own = "static char *own(const char *type) { return (tpalloc)(type, 0, 0); }\n\
               #undef tpalloc\n#define tpalloc(type, subtype, size) own(type)\n\
               int main(void) { return tpalloc(\"VIEW\", 0, 0) == 0; }\n";
    let scoped = "int main(void) { return ::tpalloc(\"UBF\", nullptr, 0) == 0; }\n";
    let header = "#include <atmi.h>\n";
    for (toolchain, language) in compilers() {
        let mut sources = vec![
            format!("{header}{USES}"),
            format!("#define tpalloc own_tpalloc\n{header}{USES}"),
            format!("{header}{own}"),
        ];
        if language == "c++" {
            sources.push(format!("{header}{scoped}"));
        }
        for source in sources {
            std::fs::write(toolchain.path("uses.c"), &source).expect("written");
            for level in ["-O0", "-O2"] {
                let flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wwrite-strings", "-Werror"];
                let what = ["-x", language, level, "-c", "-o", "uses.o", "uses.c"];
                let output = toolchain.run(&[&what[..], &flags].concat());
                let said = &output.stderr;
                assert!(output.status.success(), "{language} {level}: {source}{said}");
            }
        }
    }
}

#[test]
fn libraries_of_other_makers_link_lines_are_there() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    std::fs::write(
        gcc.path("server.c"),
        "#include <atmi.h>\nint tpsvrinit(int argc, char **argv)\n\
         { (void)argc; (void)argv; return tpunadvertise(\"X\"); }\n",
    )
    .expect("written");
    let libraries = "-Llib -latmisrv -latmi -lubf -lnstd -lrt -ldl -lm";
    let mut arguments = vec!["-o", "server", "server.c"];
    arguments.extend(libraries.split(' '));
    let output = gcc.run(&arguments);
    assert!(output.status.success(), "{}", output.stderr);
    std::fs::write(
        gcc.path("client.c"),
        "#include <atmi.h>\nint main(void) { return tpterm(); }\n",
    )
    .expect("written");
    for libraries in
        ["-latmiclt -latmi -lubf -lnstd", "-ltux -lbuft -lfml -lfml32 -lengine -ldl -lpthread"]
    {
        let mut arguments = vec!["-o", "client", "client.c", "-Llib"];
        arguments.extend(libraries.split(' '));
        let output = gcc.run(&arguments);
        assert!(output.status.success(), "{}", output.stderr);
    }
}

/// Functions that programs provide, and those that only macros of the headers call.
const NOT_CALLED: [&str; 13] = [
    "tpsvrinit",
    "tpsvrdone",
    "tpsvrthrinit",
    "tpsvrthrdone",
    "pollux_server_main",
    "pollux_server_thread_functions",
    "pollux_tperrno_address",
    "pollux_tpurcode_address",
    "pollux_berror_address",
    "pollux_userlog",
    "pollux_nerror_address",
    "pollux_enter_context",
    "pollux_leave_context",
];

/// Other names of headers for a function.
const MACROS: [(&str, &str); 1] = [("tpadvertise", "tpadvertise_full")];

type Names = BTreeSet<String>;

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The functions that the headers declare.
fn declared() -> Names {
    let texts = all_headers().map(|name| read(&own("include").join(name)));
    texts.flat_map(|text| text.lines().filter_map(function).collect::<Vec<_>>()).collect()
}

/// What the page says: functions with their errors.
fn documented() -> BTreeMap<String, Names> {
    let page = read(&own("../../../docs/reference/xatmi.md"));
    let (tables, without) = page.split_once("## Without an error").expect("the last heading");
    let mut all = BTreeMap::new();
    for row in tables.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').splitn(2, '|');
        let functions = cells.next().expect("a cell");
        let errors = cells.next().expect("another");
        let errors: Names = quoted(errors).filter(|name| is_error(name)).collect();
        all.extend(quoted(functions).map(|function| (function, errors.clone())));
    }
    let without = without.split("\n\n").next().expect("a paragraph");
    all.extend(quoted(without).map(|function| (function, Names::new())));
    all
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn is_error(word: &str) -> bool {
    let is_upper = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let of_fields = word.len() > 5 && word.starts_with('B') && !word.contains('_');
    let of_calls = word == "TPGOTSIG" || ["TPE", "TX_"].iter().any(|start| word.starts_with(start));
    is_upper(word) && (of_fields || (of_calls && !word.starts_with("TPEV")))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn errors_of(text: &str) -> Names {
    words(text).filter(|word| is_error(word)).map(str::to_owned).collect()
}

/// Names with a parenthesis behind them.
fn calls_of(statement: &str) -> Names {
    let before = statement.match_indices('(').map(|(at, _)| &statement[..at]);
    let names = before.filter_map(|text| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &text[text.trim_end_matches(is_part).len()..];
        (!name.is_empty()).then(|| {
            let known = MACROS.iter().find(|(other, _)| *other == name);
            known.map_or(name, |(_, function)| function).to_owned()
        })
    });
    names.collect()
}

/// The bodies of the macros with arguments that a program defines.
fn macros(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for definition in text.split("\n#define ").skip(1) {
        let Some((name, rest)) = definition.split_once('(') else { continue };
        let mut body = String::new();
        for line in rest.lines() {
            body.push_str(line);
            if !line.ends_with('\\') {
                break;
            }
        }
        all.insert(name.to_owned(), body);
    }
    all
}

/// A statement: the functions that it calls and the errors that it names.
type Statement = (Names, Names);

/// The text without what stands within quotes.
fn without_quoted(text: &str) -> String {
    let mut kept = String::new();
    let mut quote = None;
    let mut is_escaped = false;
    for sign in text.chars() {
        match quote {
            None => {
                // An apostrophe between letters is one of a comment.
                let is_word = kept.ends_with(|c: char| c.is_ascii_alphabetic());
                quote = (sign == '"' || (sign == '\'' && !is_word)).then_some(sign);
                kept.push(sign);
            }
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if sign == '\\' => is_escaped = true,
            Some(end) if sign == end || sign == '\n' => {
                quote = None;
                kept.push(sign);
            }
            Some(_) => {}
        }
    }
    kept
}

fn statements(text: &str) -> Vec<Statement> {
    let text = &without_quoted(&format!("\n{text}"));
    let macros = macros(text);
    let mut all = Vec::new();
    let mut meant = Names::new();
    for part in text.split_inclusive([';', '{', '}']) {
        if let Some((_, named)) = part.split_once("errors:") {
            meant = errors_of(named.split("*/").next().unwrap_or_default());
        }
        let calls = calls_of(part);
        let mut errors = errors_of(part.rsplit("*/").next().unwrap_or_default());
        for called in &calls {
            errors.extend(macros.get(called).into_iter().flat_map(|body| errors_of(body)));
        }
        if words(part).any(|word| word == "error") {
            errors.extend(meant.iter().cloned());
        }
        if part.ends_with("\n}") {
            // The end of a function.
            meant.clear();
        }
        if words(part).next().is_some() {
            all.push((calls, errors));
        }
    }
    all
}

/// What the C programs of the tests call, with the errors that they look for.
fn tested() -> BTreeMap<String, Names> {
    let mut all = BTreeMap::<String, Names>::new();
    for folder in ["tests/interface", "../pool/tests/c_programs"] {
        let entries = std::fs::read_dir(own(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("readable").path());
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == "c")) {
            let statements = statements(&read(&path));
            for (at, (calls, errors)) in statements.iter().enumerate() {
                let next = statements.get(at + 1).filter(|_| errors.is_empty());
                let errors = next.map_or(errors, |(_, errors)| errors);
                for function in calls {
                    all.entry(function.clone()).or_default().extend(errors.iter().cloned());
                }
            }
        }
    }
    all
}

#[test]
fn every_function_of_the_headers_has_a_test_in_c_for_each_of_its_errors() {
    let declared = declared();
    let documented = documented();
    let tested = tested();
    let is_shown = |name: &&String| !NOT_CALLED.contains(&name.as_str());
    let mut missing = Vec::new();
    for name in declared.iter().filter(is_shown) {
        if !documented.contains_key(name) {
            missing.push(format!("{name} is not in docs/reference/xatmi.md"));
        }
        if !tested.contains_key(name) {
            missing.push(format!("no C program calls {name}"));
        }
    }
    for (name, errors) in &documented {
        if !declared.contains(name) {
            missing.push(format!("{name} is in docs/reference/xatmi.md and in no header"));
        }
        let seen = tested.get(name);
        let unseen = errors.iter().filter(|error| seen.is_none_or(|seen| !seen.contains(*error)));
        missing.extend(unseen.map(|error| format!("no C program produces {error} of {name}")));
    }
    assert!(documented.len() > 140, "{} functions: the page was not read", documented.len());
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn an_error_belongs_to_the_calls_of_its_statement_or_of_the_one_before() {
    let text = "#define NONE(call) CHECK((call) == -1 && \\\n  Berror == BNOTPRES)\n\
                static void f(void) {\n  CHECK(one() == -1 && tperrno == TPEINVAL);\n  two();\n  \
                CHECK(tperrno == TPELIMIT);\n  NONE(three());\n  /* errors: TPEOS, TPETIME */\n  \
                CHECK(four() == error);\n}\nstatic void g(void) {\n  CHECK(five() == error);\n}\n";
    let found: Vec<(Names, Names)> = statements(text);
    let errors = |name: &str| {
        let (_, errors) = found.iter().find(|(calls, _)| calls.contains(name)).expect("called");
        errors.iter().map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(errors("one"), ["TPEINVAL"]);
    assert_eq!(errors("two"), [""; 0]);
    assert_eq!(errors("three"), ["BNOTPRES"]);
    assert_eq!(errors("four"), ["TPEOS", "TPETIME"]);
    assert_eq!(errors("five"), [""; 0]);
}
