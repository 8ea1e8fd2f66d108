//! The committed header: it is the one that the source yields, with all codes of the engine.

use cbindgen::{Builder, Config};
use engine::Code;
use std::env;
use std::fs;
use std::path::Path;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/ebbtide.h");

/// Makes the header from the source.
fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = Builder::new().with_config(config);
    let types =
        ["codes", "failure", "call", "handle", "batch", "pointers", "answer", "history", "altered"];
    for file in types.into_iter().chain([
        "interface",
        "batch_interface",
        "claim_interface",
        "files_interface",
        "history_interface",
        "alter_interface",
    ]) {
        builder = builder.with_src(root.join("src").join(file).with_extension("rs"));
    }
    let bindings = builder.generate().expect("a header");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("a header in UTF-8")
}

#[test]
fn the_committed_header_is_the_one_that_the_source_yields() {
    let made = made();
    if env::var_os("EBBTIDE_WRITE_HEADER").is_some() {
        fs::write(COMMITTED, &made).expect("the header");
    }
    let committed = fs::read_to_string(COMMITTED).unwrap_or_default();
    assert!(
        committed == made,
        "include/ebbtide.h is not up to date: run `make header` and look at the difference"
    );
}

#[test]
fn the_header_has_every_code_of_the_engine_with_its_number() {
    let header = fs::read_to_string(COMMITTED).expect("the header");
    for code in Code::ALL {
        let name = code.name().replace('-', "_").to_uppercase();
        let line = format!("#define EBBTIDE_{name} {}", code.number());
        assert!(header.lines().any(|found| found == line), "{line}");
    }
}
