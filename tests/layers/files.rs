//! The rule about imports between files: they form no circle.
//!
//! An import counts for the file that defines what it names. A module that only re-exports a name
//! (`pub use`) does not depend on it, and declaring a module is no import.

use crate::assert_none;
use crate::text::{Source, names, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Where this rule and that about inherent methods hold.
pub const FOLDERS: &[&str] =
    &["src", "core/src", "cli/src", "capi/src", "redis/src", "ship/src", "testkit/src", "benches"];

/// The names in a path, as `crate::engine::open`.
type Names = Vec<String>;

/// A module in a file of its own.
#[derive(Default)]
struct Module {
    file: String,
    /// Its shipped code, without imports.
    body: String,
    /// The modules that it declares, in files of their own.
    children: BTreeSet<String>,
    /// Its imports: the path, the name that it gets here, and whether it is re-exported.
    imports: Vec<(Names, String, bool)>,
}

/// The modules of a crate by their paths, from the crate's root.
type Crate = BTreeMap<Names, Module>;

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Splits a list at the commas that are not inside braces.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Collects the paths that an import names, each with the name that it gets.
fn imported(before: &[String], tree: &str, found: &mut Vec<(Names, String)>) {
    if let Some(open) = tree.find('{') {
        let path: Names = before.iter().cloned().chain(segments(&tree[..open])).collect();
        let close = tree.rfind('}').unwrap_or(tree.len());
        items(&tree[open + 1..close]).iter().for_each(|item| imported(&path, item, found));
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path: Names = before.iter().cloned().chain(segments(path)).collect();
    if path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    let own = path.last().cloned().unwrap_or_default();
    found.push((path, if alias.is_empty() { own } else { alias.trim().to_owned() }));
}

/// Takes the imports out of this code. Each is blanked out, so that only its uses remain.
fn take_imports(code: &mut String) -> Vec<(Names, String, bool)> {
    let mut imports = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find("use ").map(|at| from + at) {
        from = at + 4;
        let line = code[..at].rfind('\n').map_or(0, |line| line + 1);
        let visible = code[line..at].trim();
        if !visible.is_empty() && !visible.starts_with("pub") {
            continue;
        }
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        let mut found = Vec::new();
        imported(&[], &code[from..end], &mut found);
        let exported = !visible.is_empty();
        imports.extend(found.into_iter().map(|(path, name)| (path, name, exported)));
        code.replace_range(line..end, &" ".repeat(end - line));
    }
    imports
}

/// Returns the modules that a file declares, each with the path in its attribute.
fn declared(source: &Source) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut path = None;
    for (line, code) in source.text.lines().zip(source.code.lines()) {
        if let Some((_, rest)) = line.split_once("#[path = \"") {
            path = rest.split('"').next().map(str::to_owned);
        } else if let Some((visible, name)) = code.trim().split_once("mod ")
            && let Some(name) = name.strip_suffix(';')
            && (visible.is_empty() || visible.starts_with("pub"))
        {
            found.push((name.to_owned(), path.take()));
        }
    }
    found
}

/// Returns the path without `..`.
fn normal(path: &str) -> String {
    let mut folders: Vec<&str> = Vec::new();
    for name in path.split('/') {
        if name == ".." {
            folders.pop();
        } else {
            folders.push(name);
        }
    }
    folders.join("/")
}

/// Reads a module and the modules below it. `folder` is where its children are.
fn read(all: &BTreeMap<&str, &Source>, at: (&str, &str), path: Names, modules: &mut Crate) {
    let (file, folder) = at;
    let Some(source) = all.get(file) else { return };
    let (mut body, mut children) = (source.shipped(), BTreeSet::new());
    let beside = file.rfind('/').map_or("", |end| &file[..=end]);
    for (name, given) in declared(source) {
        let given = given.map(|given| normal(&format!("{beside}{given}")));
        let usual = [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")];
        let found = given.iter().chain(&usual).find_map(|file| all.get_key_value(file.as_str()));
        if found.is_some_and(|(_, source)| source.test) {
            continue;
        }
        let path: Names = path.iter().chain([&name]).cloned().collect();
        match (found, given) {
            (Some((child, _)), _) => {
                let below = child.strip_suffix("mod.rs").map(str::to_owned);
                let below = below.unwrap_or_else(|| child.replace(".rs", "/"));
                read(all, (child, &below), path, modules);
            }
            // A file of another folder, which imports nothing from here.
            (None, Some(file)) => _ = modules.insert(path, Module { file, ..Module::default() }),
            (None, None) => continue,
        }
        children.insert(name);
    }
    // A visibility names no code.
    while let Some(at) = body.find("pub(in ") {
        let end = body[at..].find(')').map_or(body.len(), |end| at + end + 1);
        body.replace_range(at..end, "pub");
    }
    let imports = take_imports(&mut body);
    modules.insert(path, Module { file: file.to_owned(), body, children, imports });
}

/// Returns the module that defines the item that `path` names in the module `from`; `None` if
/// another crate does.
fn definer<'a>(modules: &'a Crate, from: &Names, path: &[String]) -> Option<&'a Module> {
    let (first, mut rest) = path.split_first()?;
    let mut here = match first.as_str() {
        "crate" => Names::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        name if modules[from].children.contains(name) => {
            rest = path;
            from.clone()
        }
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        let module = &modules[&here];
        if name == "super" {
            here.pop();
        } else if module.children.contains(name) {
            here.push(name.clone());
        } else {
            let exported = module.imports.iter().find(|(_, own, on)| *on && own == name);
            return match exported {
                Some((path, ..)) if path.last() != Some(name) || path.len() > 1 => {
                    let path: Names = path.iter().chain(after).cloned().collect();
                    definer(modules, &here, &path)
                }
                _ => Some(module),
            };
        }
        rest = after;
    }
    Some(&modules[&here])
}

/// Returns the paths in this code: names joined by `::`.
fn paths(code: &str) -> BTreeSet<Names> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("::") {
        let start = code[..at].rfind(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let start = start.map_or(0, |start| start + 1);
        let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let end = code[at..].find(|letter| !is_path(letter)).map_or(code.len(), |end| at + end);
        // The first joint of a path has none before it.
        if start < at && !code[..start].ends_with(':') {
            found.insert(segments(&code[start..end]).collect());
        }
    }
    found
}

/// Returns the files that each file of a crate imports from.
fn edges(modules: &Crate) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut edges = BTreeMap::new();
    for (path, module) in modules {
        let used = |&&(_, ref name, on): &&(Names, String, bool)| !on || names(&module.body, name);
        let imports = module.imports.iter().filter(used).map(|(path, ..)| path.clone());
        let files = imports.chain(paths(&module.body)).filter_map(|named| {
            let file = definer(modules, path, &named)?.file.as_str();
            (file != module.file).then_some(file)
        });
        edges.insert(module.file.as_str(), files.collect());
    }
    edges
}

/// Returns the files that one imports, directly or through others.
fn reached<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        for &next in edges.get(file).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// Returns the circles of the crates in these sources: the files of each, and their imports.
fn circles(all: &[Source]) -> BTreeMap<BTreeSet<String>, Vec<String>> {
    let by_name: BTreeMap<&str, &Source> =
        all.iter().map(|source| (source.name.as_str(), source)).collect();
    let mut found = BTreeMap::new();
    let is_root = |source: &&Source| {
        source.name.ends_with("/lib.rs")
            || source.code.lines().any(|line| line.contains("fn main("))
    };
    for source in all.iter().filter(is_root) {
        let end = source.name.rfind('/').map_or(0, |end| end + 1);
        let mut modules = Crate::new();
        read(&by_name, (&source.name, &source.name[..end]), Names::new(), &mut modules);
        let edges = edges(&modules);
        for &file in edges.keys() {
            let there = reached(&edges, file);
            if !there.contains(file) {
                continue;
            }
            let back = there.iter().filter(|other| reached(&edges, other).contains(file));
            let circle: BTreeSet<String> = back.map(|&file| file.to_owned()).collect();
            let imports: Vec<&str> =
                edges[file].iter().copied().filter(|&to| circle.contains(to)).collect();
            let line = format!("{file} imports {}", imports.join(", "));
            let lines: &mut Vec<String> = found.entry(circle).or_default();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    found
}

/// Returns the sources of a folder, named from the root of the project.
fn below(folder: &str) -> Vec<Source> {
    let mut all = sources(folder);
    all.iter_mut().for_each(|source| source.name.insert_str(0, &format!("{folder}/")));
    all
}

#[test]
fn files_import_in_no_circle() {
    let found = FOLDERS.iter().flat_map(|folder| circles(&below(folder)));
    let shown = |imports: Vec<String>| format!("a circle:\n    {}", imports.join("\n    "));
    let wrong: Vec<String> = found.map(|(_, imports)| shown(imports)).collect();
    assert_none(&wrong, "imports between files form no circle");
}

/// Returns the files of a module that its head leaves out, if the head names the others.
fn left_out(source: &Source) -> Vec<String> {
    let head: Vec<_> = source.text.lines().take_while(|line| line.starts_with("//!")).collect();
    let head = head.join(" ");
    let is_named = |name: &String| {
        let ends = ["`", "::"];
        ends.iter().any(|end| {
            ["`", "mod@"].iter().any(|begin| head.contains(&[begin, name.as_str(), end].concat()))
        })
    };
    // Every kind has a `spec`. Files of tests are declared behind an attribute.
    let is_test = |name: &String| {
        let lines: Vec<_> = source.text.lines().collect();
        let is_it = |line: &str| line.ends_with(&format!("mod {name};"));
        lines.windows(2).any(|pair| pair[0].contains("(test") && is_it(pair[1]))
    };
    let files = declared(source).into_iter().filter(|(_, path)| path.is_none());
    let files = files.map(|(name, _)| name).filter(|name| name != "spec" && !is_test(name));
    let (named, left): (Vec<_>, Vec<_>) = files.partition(is_named);
    if named.len() > 2 * left.len() { left } else { Vec::new() }
}

#[test]
fn a_head_that_names_the_files_of_its_folder_names_all_of_them() {
    let mut wrong = Vec::new();
    for &folder in FOLDERS {
        for source in sources(folder) {
            let left = left_out(&source);
            if !left.is_empty() {
                wrong.push(format!("{folder}/{}: {}", source.name, left.join(", ")));
            }
        }
    }
    assert_none(&wrong, "heads that leave files out");
}

#[test]
fn imports_and_paths_are_read_from_the_source() {
    let mut code = "use a::{self, b::{C, d as e}};\npub(crate) use self::f::G;\nx.use_it();".into();
    let imports = take_imports(&mut code);
    let found: Vec<(String, &str, bool)> =
        imports.iter().map(|(path, name, on)| (path.join("::"), name.as_str(), *on)).collect();
    let expected = [
        ("a", "a", false),
        ("a::b::C", "C", false),
        ("a::b::d", "e", false),
        ("self::f::G", "G", true),
    ];
    assert_eq!(found, expected.map(|(path, name, on)| (path.to_owned(), name, on)));
    assert_eq!(code.trim_matches([' ', ';', '\n']), "x.use_it()");
    let found = paths("let x = a::b::c(d::E, &crate::f::G);");
    assert_eq!(
        found.iter().map(|path| path.join("::")).collect::<Vec<_>>(),
        ["a::b::c", "crate::f::G", "d::E"]
    );
}

#[test]
fn a_circle_is_found_through_a_name_that_its_parent_exports() {
    let source = |(name, text): (&str, &str)| {
        let (name, text) = (name.to_owned(), text.to_owned());
        Source { name, code: text.clone(), text, test: false }
    };
    let parent = "mod a;\nmod b;\npub use b::B;\n";
    let found = |a: &str, b: &str| {
        let all = [("x/lib.rs", parent), ("x/a.rs", a), ("x/b.rs", b)].map(source);
        circles(&all).into_keys().collect::<Vec<_>>()
    };
    let circle = BTreeSet::from(["x/a.rs", "x/b.rs"].map(str::to_owned));
    assert_eq!(found("use crate::B;", "pub struct B(super::a::A);"), [circle]);
    assert!(found("use crate::B;", "pub struct B;").is_empty());
}
