//! The style guide as a test: what a person should not have to say in review.
//!
//! Sizes, words that must not stay, the opening comment of every module, which layer may use
//! which, and the index of the documents. Each complaint is a line `file:line: what to change`.

use raid_tests::requires::repository;
use std::fs;
use std::path::Path;

/// Longest line, in characters.
const COLUMNS_MAX: usize = 100;

/// Longest function, in lines: a screen.
const FUNCTION_MAX: usize = 70;

/// Longest file, in lines, inline tests not counted.
const FILE_MAX: usize = 500;

/// Largest file that is not source code, in bytes: no blobs.
const BLOB_MAX: u64 = 512 << 10;

/// Words that must not stay, put together here so that this file does not hold them.
const BANNED: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "finish it"),
    (concat!("TO", "DO"), "finish it"),
    (concat!("dbg", "!("), "take it out"),
    (concat!("to", "do!("), "write it"),
    (concat!("unimpl", "emented!("), "write it"),
    (concat!("#[", "ignore"), "a test that does not run is no test: say what it requires instead"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
];

/// What each layer of raid-core may use of the others; what is not here may use anything.
const LAYERS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("error", &[]),
    ("time", &[]),
    ("buf", &["units"]),
    ("code", &["units", "buf"]),
    ("layout", &["units", "error"]),
    ("plan", &["units", "error", "layout", "code"]),
    ("meta", &["units", "error", "time"]),
    ("engine", &["units", "error", "time", "buf", "code", "layout", "plan", "meta"]),
    ("device", &["units", "error", "time", "buf"]),
    ("scrub", &["units", "error", "code", "layout", "meta", "device", "assembly", "sim"]),
];

/// Parts of a layer that may use more than the layer.
const LAYER_EXTRAS: &[(&str, &str)] =
    &[("meta/assemble", "layout"), ("meta/create", "layout"), ("device/hdd", "sim")];

/// What a part of the source must not name, and why.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("raid-core/src/units.rs", SYSTEM, "the pure layers know no system"),
    ("raid-core/src/code/", SYSTEM, "the pure layers know no system"),
    ("raid-core/src/layout/", SYSTEM, "the pure layers know no system"),
    ("raid-core/src/plan/", SYSTEM, "the pure layers know no system"),
    ("raid-core/src/meta/", SYSTEM_BUT_IO, "metadata is byte windows and records"),
    ("raid-core/src/engine/", SYSTEM, "the engine has no I/O, clock, thread or lock"),
    ("raid-core/src/sim/", &["std::thread", "std::time"], "simulated time is a number"),
    ("raid-fuse/src/", INTERNALS, "front ends use arrays, devices, metadata and layouts"),
    ("raid-bench/src/", INTERNALS, "benches use arrays, devices, metadata and layouts"),
];

/// Everything that touches the machine or shares state between threads.
const SYSTEM: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::thread",
    "std::time",
    "std::process",
    "std::env",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::atomic",
    "std::sync::mpsc",
    "parking_lot",
    "libc::",
    "io_uring",
];

/// The same for code that reads through a window, whose errors are those of std.
const SYSTEM_BUT_IO: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::time",
    "std::process",
    "std::env",
    "std::sync",
    "parking_lot",
    "libc::",
    "io_uring",
];

/// What is nobody's business outside raid-core.
const INTERNALS: &[&str] = &[
    "raid_core::plan",
    "engine::Engine",
    "engine::Event",
    "engine::Action",
    "engine::Io",
    "engine::Ask",
];

/// Folders whose files are rows of a table: the folder, the constant a row defines.
const TABLES: &[(&str, &str)] = &[("raid-core/src/layout", "LEVEL")];

/// A text file of the repository.
struct Source {
    /// From the repository's root.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// The text without inline tests.
    fn code(&self) -> &str {
        let tests = self.text.find("\n#[cfg(test)]\nmod tests {");
        &self.text[..tests.unwrap_or(self.text.len())]
    }

    /// The module of raid-core it belongs to, as `layout` or `meta/create`; none for others.
    fn module(&self) -> Option<&str> {
        let path = self.path.strip_prefix("raid-core/src/")?.strip_suffix(".rs")?;
        Some(path.strip_suffix("/mod").unwrap_or(path))
    }
}

/// Files below `dir` that belong to the repository, in order.
fn sources(dir: &Path, found: &mut Vec<Source>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        let hidden = name.starts_with('.') && ![".ci", ".cargo"].contains(&name.as_str());
        let facts = entry.metadata().unwrap();
        if hidden || name == "target" {
            continue;
        }
        let path = entry.path();
        if facts.is_dir() {
            complaints.extend(sources(&path, found));
            continue;
        }
        let path = path.strip_prefix(repository()).unwrap().to_str().unwrap().to_string();
        if facts.len() > BLOB_MAX {
            complaints.push(format!("{path}:1: larger than {BLOB_MAX} bytes"));
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            found.push(Source { path, text });
        }
    }
    complaints
}

fn all_sources() -> Vec<Source> {
    let mut found = Vec::new();
    let complaints = sources(&repository(), &mut found);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    found
}

fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
}

fn long_lines(source: &Source) -> Vec<String> {
    let checked = source.is_rust() || source.path.ends_with("tests/run");
    let long = source.lines().filter(|(_, line)| checked && line.chars().count() > COLUMNS_MAX);
    long.map(|(n, _)| format!("{}:{n}: over {COLUMNS_MAX} columns", source.path)).collect()
}

fn long_file(source: &Source) -> Vec<String> {
    let lines = source.code().lines().count();
    if !source.is_rust() || lines <= FILE_MAX {
        return Vec::new();
    }
    vec![format!("{}:1: {lines} lines, at most {FILE_MAX}: two nouns?", source.path)]
}

fn banned_words(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (n, line) in source.lines() {
        for (word, advice) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
            complaints.push(format!("{}:{n}: {word}: {advice}", source.path));
        }
    }
    complaints
}

fn opening_comment(source: &Source) -> Vec<String> {
    if !source.is_rust() || source.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}:1: open with //! what it is for, promises, refuses", source.path)]
}

/// Functions over the limit. In formatted code a function ends with the first line that begins
/// with `}` at the indentation of its `fn`.
fn long_functions(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut open: Vec<(usize, usize, &str)> = Vec::new();
    for (n, line) in source.lines().filter(|_| source.is_rust()) {
        let rest = line.trim_start();
        let indent = line.len() - rest.len();
        if rest.starts_with('}') && open.last().is_some_and(|(at, ..)| *at == indent) {
            let (_, start, head) = open.pop().expect("a function is open");
            let length = n - start + 1;
            if length > FUNCTION_MAX {
                let head = head.trim();
                complaints.push(format!("{}:{start}: {length} lines: {head}", source.path));
            }
        }
        let head = rest.split('(').next().unwrap_or_default();
        let is_function = head.starts_with("fn ") || head.contains(" fn ");
        if is_function && !rest.starts_with("//") && !rest.ends_with([';', '}']) {
            open.push((indent, n, line));
        }
    }
    complaints
}

/// What follows `crate::` in a line of code; a group counts as each of its entries.
fn uses(line: &str) -> Vec<&str> {
    let name = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let mut found = Vec::new();
    for (at, prefix) in line.match_indices("crate::") {
        let rest = &line[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group.split(',').map(|entry| {
                let entry = entry.trim();
                &entry[..name(entry).unwrap_or(entry.len())]
            })),
            None => found.push(&rest[..name(rest).unwrap_or(rest.len())]),
        }
    }
    found
}

/// Modules of raid-core that exist for tests only: their declaration has `cfg(test)` above it.
fn test_modules(all: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in all {
        let Some(module) = source.module() else { continue };
        let lines: Vec<&str> = source.text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].starts_with("#[cfg(test)]")) {
            let name = pair[1].trim_start_matches("pub ").trim_start_matches("(crate) ");
            if let Some(name) = name.strip_prefix("mod ").and_then(|name| name.strip_suffix(';')) {
                found.push(format!("{module}/{name}"));
            }
        }
    }
    found
}

fn layer_breaks(source: &Source, test_modules: &[String]) -> Vec<String> {
    let Some(module) = source.module() else { return Vec::new() };
    let in_tests = test_modules.iter().any(|test| module == test || module.ends_with("/tests"));
    let layer = module.split('/').next().expect("a path has a first part");
    let row = LAYERS.iter().find(|(name, _)| *name == layer);
    let Some((_, allowed)) = row.filter(|_| !in_tests) else { return Vec::new() };
    let extra = |used: &str| {
        LAYER_EXTRAS.iter().any(|(part, more)| module.starts_with(part) && *more == used)
    };
    let mut complaints = Vec::new();
    for (n, line) in source.code().lines().enumerate() {
        for used in uses(line.split("//").next().unwrap_or_default()) {
            if used != layer && !allowed.contains(&used) && !extra(used) {
                let path = &source.path;
                complaints.push(format!("{path}:{}: {layer} may not use {used}", n + 1));
            }
        }
    }
    complaints
}

fn forbidden_names(source: &Source, test_modules: &[String]) -> Vec<String> {
    let in_tests = source.module().is_some_and(|module| {
        module.ends_with("/tests") || test_modules.iter().any(|test| test == module)
    });
    let mut complaints = Vec::new();
    let rows = FORBIDDEN.iter().filter(|(part, ..)| source.path.starts_with(part) && !in_tests);
    for (_, names, why) in rows {
        for (n, line) in source.code().lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            for name in names.iter().filter(|name| line.contains(**name)) {
                complaints.push(format!("{}:{}: {name}: {why}", source.path, n + 1));
            }
        }
    }
    complaints
}

/// Titles of a document: lines `# ...` outside code.
fn titles(text: &str) -> usize {
    let mut in_code = false;
    let mut count = 0;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        count += (!in_code && line.starts_with("# ")) as usize;
    }
    count
}

#[test]
fn lines_functions_and_files_fit() {
    let all = all_sources();
    assert!(all.iter().any(|source| source.path == "tests/tests/tidy.rs"), "the walk finds us");
    let fits = |source: &Source| [long_lines(source), long_functions(source), long_file(source)];
    assert_none(all.iter().flat_map(fits).flatten().collect());
}

#[test]
fn nothing_unfinished_and_no_path_of_one_machine_stays() {
    assert_none(all_sources().iter().flat_map(banned_words).collect());
}

#[test]
fn every_module_opens_with_its_purpose() {
    assert_none(all_sources().iter().flat_map(opening_comment).collect());
}

#[test]
fn every_layer_uses_only_what_it_may() {
    let all = all_sources();
    let tests = test_modules(&all);
    let breaks = |source| [layer_breaks(source, &tests), forbidden_names(source, &tests)];
    assert_none(all.iter().flat_map(breaks).flatten().collect());
}

#[test]
fn every_row_is_in_its_table() {
    let all = all_sources();
    for (dir, row) in TABLES {
        let table = all.iter().find(|source| source.path == format!("{dir}/mod.rs")).unwrap();
        let rows = all.iter().filter(|source| {
            source.path.starts_with(dir) && source.text.contains(&format!("pub const {row}: "))
        });
        for source in rows {
            let stem = Path::new(&source.path).file_stem().unwrap().to_str().unwrap();
            let entry = format!("&{stem}::{row},");
            assert!(table.text.contains(&entry), "{dir}/mod.rs: {entry} is not in the table");
        }
    }
}

#[test]
fn every_document_has_one_title_and_is_in_the_index() {
    let all = all_sources();
    let is_document = |source: &&Source| source.path.ends_with(".md");
    let index = all.iter().find(|source| source.path == "docs/README.md").unwrap();
    let mut complaints = Vec::new();
    for Source { path, text } in all.iter().filter(is_document) {
        if titles(text) != 1 && path != "CHANGELOG.md" {
            complaints.push(format!("{path}:1: {} titles instead of one", titles(text)));
        }
        let listed = path
            .strip_prefix("docs/")
            .is_none_or(|name| name == "README.md" || index.text.contains(&format!("]({name})")));
        if !listed {
            complaints.push(format!("{path}:1: not in docs/README.md"));
        }
    }
    assert_none(complaints);
}

#[test]
fn each_check_complains_when_it_should() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let body = "    let x = 1;\n".repeat(FUNCTION_MAX - 1);
    let long = source("a.rs", &format!("//! A.\n\npub fn f() {{\n{body}}}\n\nfn g() {{\n}}\n"));
    assert_eq!(long_functions(&long), ["a.rs:3: 71 lines: pub fn f() {"]);
    assert!(
        long_functions(&source("a.rs", &long.text.replacen("    let x = 1;\n", "", 1))).is_empty()
    );

    assert_eq!(long_lines(&source("a.rs", &"x".repeat(101))).len(), 1);
    assert_eq!(long_lines(&source("a.rs", &"ä".repeat(100))).len(), 0);
    let tests = format!("\n#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(600));
    assert_eq!(long_file(&source("a.rs", &format!("{}{tests}", "\n".repeat(500)))).len(), 0);
    assert_eq!(long_file(&source("a.rs", &format!("{}{tests}", "\n".repeat(502)))).len(), 1);
    assert_eq!(banned_words(&source("a.md", &format!("now\n{} later", BANNED[0].0))).len(), 1);
    assert_eq!(opening_comment(&source("a.rs", "// A.\n")).len(), 1);

    let layout = |text| layer_breaks(&source("raid-core/src/layout/x.rs", text), &[]);
    assert_eq!(layout("use crate::units::Slot;\n// crate::code\n").len(), 0);
    assert_eq!(layout("use crate::{units::Slot, code::P};\nfn f(x: crate::buf::Buf) {}").len(), 2);
    let meta = |path, text| layer_breaks(&source(path, text), &[]);
    assert_eq!(meta("raid-core/src/meta/create/mod.rs", "use crate::layout::Shape;").len(), 0);
    assert_eq!(meta("raid-core/src/meta/record.rs", "use crate::layout::Shape;").len(), 1);
    let clock = source("raid-core/src/engine/x.rs", "use std::time::Instant;\nuse std::sync::Arc;");
    assert_eq!(forbidden_names(&clock, &[]).len(), 1);
    assert_eq!(forbidden_names(&clock, &["engine/x".into()]).len(), 0);
    assert_eq!((titles("# A\n```\n# b\n```\n"), titles("# A\n# B\n"), titles("A\n")), (1, 2, 0));
}
