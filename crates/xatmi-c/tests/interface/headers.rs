//! The headers compile alone and in any order, without a warning, for each standard of C and C++.

use crate::toolchain::Toolchain;

pub(crate) const HEADERS: [&str; 9] = [
    "atmi.h",
    "xatmi.h",
    "tx.h",
    "ubf.h",
    "fml32.h",
    "fml.h",
    "fml1632.h",
    "userlog.h",
    "ndebug.h",
];

/// Each header alone, each pair in both orders, and one twice.
fn sources() -> Vec<String> {
    let mut sources = Vec::new();
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
    let named = HEADERS.iter().flat_map(|name| {
        let path = toolchain.path("include").join(name);
        let text = std::fs::read_to_string(path).expect("a header");
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.into_iter().filter_map(|line| function(&line).or_else(|| alias(&line)))
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
        "#include <atmi.h>\n#include <fml1632.h>\n#include <tx.h>\n#include <userlog.h>\n#include <ndebug.h>\nvoid (*all[])(void) = {{\n{uses}}};\n\
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
    let before = declaration.split('(').next()?;
    Some(before.rsplit([' ', '*']).next()?.to_owned())
}

/// The other name that a line gives to a function: `#define Fadd32 Badd`.
fn alias(line: &str) -> Option<String> {
    let (name, meaning) = line.strip_prefix("#define ")?.split_once(' ')?;
    let is_macro = name.contains('(') || ["Ferror32", "Ferror"].contains(&name);
    let is_function = meaning.trim_start_matches('C').starts_with('B')
        && meaning.chars().any(char::is_lowercase)
        && !meaning.starts_with("Bv")
        && !is_macro;
    (is_function && name.starts_with(['F', 'C'])).then(|| name.to_owned())
}

#[test]
fn what_is_not_here_is_refused_with_a_word() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let views = "pollux has no views: see docs/xatmi-programs.md";
    let queues = "pollux has no persistent queues: see docs/xatmi-programs.md";
    for (body, words) in [
        ("return Bvget(0, 0, 0, 0, 0, 0, 0, 0);", views),
        ("return Fvftos32(0, 0, 0) + Fvsinit(0, 0);", views),
        ("return tpviewtojson(0, 0, 0, 0, 0);", views),
        ("return tpenqueue(\"S\", \"Q\", 0, 0, 0, 0);", queues),
        ("return tpdequeue(\"S\", \"Q\", 0, 0, 0, 0);", queues),
        ("TPQCTL control; return sizeof control;", queues),
        ("BVIEWFLD field; return sizeof field;", views),
        // A program that takes the address is refused by the linker.
        ("return (int)(long)(void *)Bvnull;", "undefined reference to `Bvnull'"),
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
fn a_view_buffer_is_refused_where_its_type_is_written() {
    const WORDS: &str =
        "pollux has no VIEW, X_COMMON and X_C_TYPE buffers: see docs/xatmi-programs.md";
    for (toolchain, language) in compilers() {
        for name in ["VIEW", "VIEW32", "X_COMMON", "X_C_TYPE"] {
            let spellings =
                [format!("\"{name}\""), format!("(char *)\"{name}\""), "TYPE".to_owned()];
            for (spelling, level) in spellings.iter().zip(["-O0", "-O2", "-O0"]) {
                let source = format!(
                    "#include <atmi.h>\n#define TYPE \"{name}\"\n\
                     int main(void) {{ return tpalloc({spelling}, 0, 0) == 0; }}\n"
                );
                std::fs::write(toolchain.path("view.c"), source).expect("written");
                let output =
                    toolchain.run(&["-x", language, level, "-c", "-o", "view.o", "view.c"]);
                let said = &output.stderr;
                assert!(!output.status.success() && said.contains(WORDS), "{spelling}: {said}");
            }
        }
    }
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
    let arguments = ["-o", "client", "client.c", "-Llib", "-latmiclt", "-latmi", "-lubf", "-lnstd"];
    let output = gcc.run(&arguments);
    assert!(output.status.success(), "{}", output.stderr);
}
